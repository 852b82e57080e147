//! Rows: columns of fixed width at fixed offsets, little-endian, in the standard's widths (TPC-C
//! 1.3).
//!
//! Money is in cents, rates are in hundredths of a percent, times in microseconds since 1970.
//! Columns that are in the key are not in the row. A row is changed in the bytes that were read.

/// Defines the type of a numeric column.
macro_rules! number {
    ($name:ident, $type:ty) => {
        #[doc = concat!("A column of type ", stringify!($type), ", and where it is.")]
        #[derive(Clone, Copy)]
        pub(crate) struct $name(pub(crate) usize);

        #[allow(dead_code, reason = "not every type of number is added to")]
        impl $name {
            const BYTES: usize = size_of::<$type>();

            #[inline]
            pub(crate) fn get(self, row: &[u8]) -> $type {
                let mut bytes = [0; Self::BYTES];
                bytes.copy_from_slice(&row[self.0..self.0 + Self::BYTES]);
                <$type>::from_le_bytes(bytes)
            }

            #[inline]
            pub(crate) fn set(self, row: &mut [u8], value: $type) {
                row[self.0..self.0 + Self::BYTES].copy_from_slice(&value.to_le_bytes());
            }

            /// Adds to the number; an overflow wraps around.
            #[inline]
            pub(crate) fn add(self, row: &mut [u8], more: $type) {
                self.set(row, self.get(row).wrapping_add(more));
            }
        }
    };
}

number!(U8, u8);
number!(U16, u16);
number!(U32, u32);
number!(I32, i32);
number!(I64, i64);
number!(U64, u64);

/// A text column: its offset and its width. Shorter text is padded with zeroes.
#[derive(Clone, Copy)]
pub(crate) struct Text(pub(crate) usize, pub(crate) usize);

impl Text {
    #[inline]
    pub(crate) fn get(self, row: &[u8]) -> &[u8] {
        &row[self.0..self.0 + self.1]
    }

    #[inline]
    pub(crate) fn get_mut(self, row: &mut [u8]) -> &mut [u8] {
        &mut row[self.0..self.0 + self.1]
    }

    pub(crate) fn set(self, row: &mut [u8], text: &[u8]) {
        let target = self.get_mut(row);
        target.fill(0);
        target[..text.len()].copy_from_slice(text);
    }
}

/// The bytes of an address: two streets, city, state and zip code.
pub(crate) const ADDRESS_BYTES: usize = 20 + 20 + 20 + 2 + 9;

pub(crate) mod warehouse {
    use super::{ADDRESS_BYTES, I32, I64, Text};

    pub(crate) const NAME: Text = Text(0, 10);
    pub(crate) const ADDRESS: Text = Text(10, ADDRESS_BYTES);
    pub(crate) const TAX: I32 = I32(81);
    pub(crate) const YTD: I64 = I64(85);
    pub(crate) const BYTES: usize = 93;
}

pub(crate) mod district {
    use super::{ADDRESS_BYTES, I32, I64, Text, U32};

    pub(crate) const NAME: Text = Text(0, 10);
    pub(crate) const ADDRESS: Text = Text(10, ADDRESS_BYTES);
    pub(crate) const TAX: I32 = I32(81);
    pub(crate) const YTD: I64 = I64(85);
    pub(crate) const NEXT_O_ID: U32 = U32(93);
    pub(crate) const BYTES: usize = 97;
}

pub(crate) mod customer {
    use super::{ADDRESS_BYTES, I32, I64, Text, U32, U64};

    pub(crate) const FIRST: Text = Text(0, 16);
    pub(crate) const MIDDLE: Text = Text(16, 2);
    pub(crate) const LAST: Text = Text(18, 16);
    pub(crate) const ADDRESS: Text = Text(34, ADDRESS_BYTES);
    pub(crate) const PHONE: Text = Text(105, 16);
    pub(crate) const SINCE: U64 = U64(121);
    pub(crate) const CREDIT: Text = Text(129, 2);
    pub(crate) const CREDIT_LIM: I32 = I32(131);
    pub(crate) const DISCOUNT: I32 = I32(135);
    pub(crate) const BALANCE: I64 = I64(139);
    pub(crate) const YTD_PAYMENT: I64 = I64(147);
    pub(crate) const PAYMENT_CNT: U32 = U32(155);
    pub(crate) const DELIVERY_CNT: U32 = U32(159);
    pub(crate) const DATA: Text = Text(163, 500);
    pub(crate) const BYTES: usize = 663;
}

pub(crate) mod history {
    use super::{I32, Text, U8, U16, U32, U64};

    pub(crate) const C_W_ID: U32 = U32(0);
    pub(crate) const C_D_ID: U8 = U8(4);
    pub(crate) const C_ID: U16 = U16(5);
    pub(crate) const W_ID: U32 = U32(7);
    pub(crate) const D_ID: U8 = U8(11);
    pub(crate) const DATE: U64 = U64(12);
    pub(crate) const AMOUNT: I32 = I32(20);
    pub(crate) const DATA: Text = Text(24, 24);
    pub(crate) const BYTES: usize = 48;
}

pub(crate) mod order {
    use super::{U8, U16, U64};

    pub(crate) const C_ID: U16 = U16(0);
    pub(crate) const ENTRY_D: U64 = U64(2);
    /// The carrier; 0: the order is not delivered.
    pub(crate) const CARRIER_ID: U8 = U8(10);
    pub(crate) const OL_CNT: U8 = U8(11);
    pub(crate) const ALL_LOCAL: U8 = U8(12);
    /// The bytes of a row. With its key of 6 bytes a row is about as wide as in the standard.
    pub(crate) const BYTES: usize = 16;
}

pub(crate) mod order_line {
    use super::{I32, Text, U8, U32, U64};

    pub(crate) const I_ID: U32 = U32(0);
    pub(crate) const SUPPLY_W_ID: U32 = U32(4);
    /// The time of the delivery; 0: not delivered.
    pub(crate) const DELIVERY_D: U64 = U64(8);
    pub(crate) const QUANTITY: U8 = U8(16);
    pub(crate) const AMOUNT: I32 = I32(17);
    pub(crate) const DIST_INFO: Text = Text(21, 24);
    pub(crate) const BYTES: usize = 45;
}

pub(crate) mod item {
    use super::{I32, Text, U32};

    pub(crate) const IM_ID: U32 = U32(0);
    pub(crate) const NAME: Text = Text(4, 24);
    pub(crate) const PRICE: I32 = I32(28);
    pub(crate) const DATA: Text = Text(32, 50);
    pub(crate) const BYTES: usize = 82;
}

pub(crate) mod stock {
    use super::{I32, Text, U32};

    pub(crate) const QUANTITY: I32 = I32(0);
    pub(crate) const YTD: U32 = U32(4);
    pub(crate) const ORDER_CNT: U32 = U32(8);
    pub(crate) const REMOTE_CNT: U32 = U32(12);
    pub(crate) const DATA: Text = Text(16, 50);
    pub(crate) const BYTES: usize = 306;

    /// Returns the column with the stock's information for a district, from 1 to 10.
    pub(crate) const fn dist(district: u8) -> Text {
        Text(66 + 24 * (district as usize - 1), 24)
    }
}

const _: () = {
    // Each row ends where its last column does.
    assert!(warehouse::YTD.0 + 8 == warehouse::BYTES);
    assert!(district::NEXT_O_ID.0 + 4 == district::BYTES);
    assert!(customer::DATA.0 + customer::DATA.1 == customer::BYTES);
    assert!(history::DATA.0 + history::DATA.1 == history::BYTES);
    assert!(order::ALL_LOCAL.0 < order::BYTES);
    assert!(order_line::DIST_INFO.0 + order_line::DIST_INFO.1 == order_line::BYTES);
    assert!(item::DATA.0 + item::DATA.1 == item::BYTES);
    assert!(stock::dist(10).0 + stock::dist(10).1 == stock::BYTES);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of a row keeps its value while all others are set, so no two columns share a
    /// byte.
    #[test]
    fn columns_do_not_overlap() {
        let mut row = [0; customer::BYTES];
        customer::FIRST.set(&mut row, b"first");
        customer::MIDDLE.set(&mut row, b"OE");
        customer::LAST.set(&mut row, b"BARBARBAR");
        customer::ADDRESS.set(&mut row, &[b'a'; ADDRESS_BYTES]);
        customer::PHONE.set(&mut row, &[b'0'; 16]);
        customer::SINCE.set(&mut row, 1);
        customer::CREDIT.set(&mut row, b"BC");
        customer::CREDIT_LIM.set(&mut row, 5_000_000);
        customer::DISCOUNT.set(&mut row, 4999);
        customer::BALANCE.set(&mut row, -1000);
        customer::YTD_PAYMENT.set(&mut row, i64::MAX);
        customer::PAYMENT_CNT.set(&mut row, u32::MAX);
        customer::DELIVERY_CNT.set(&mut row, 7);
        customer::DATA.set(&mut row, &[b'd'; 500]);
        assert_eq!(customer::FIRST.get(&row), b"first\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(customer::CREDIT.get(&row), b"BC");
        assert_eq!(customer::BALANCE.get(&row), -1000);
        assert_eq!(customer::YTD_PAYMENT.get(&row), i64::MAX);
        assert_eq!(
            (customer::PAYMENT_CNT.get(&row), customer::DELIVERY_CNT.get(&row)),
            (u32::MAX, 7)
        );
        assert_eq!((customer::SINCE.get(&row), customer::DISCOUNT.get(&row)), (1, 4999));
        assert_eq!(customer::ADDRESS.get(&row), &[b'a'; ADDRESS_BYTES]);
        assert_eq!(customer::CREDIT_LIM.get(&row), 5_000_000);

        let mut row = [0; order_line::BYTES];
        order_line::DIST_INFO.set(&mut row, &[b'x'; 24]);
        order_line::AMOUNT.set(&mut row, -1);
        order_line::QUANTITY.set(&mut row, 5);
        order_line::DELIVERY_D.set(&mut row, u64::MAX);
        order_line::SUPPLY_W_ID.set(&mut row, 3);
        order_line::I_ID.set(&mut row, 9);
        assert_eq!((order_line::AMOUNT.get(&row), order_line::QUANTITY.get(&row)), (-1, 5));
        assert_eq!(order_line::DELIVERY_D.get(&row), u64::MAX);
        assert_eq!((order_line::SUPPLY_W_ID.get(&row), order_line::I_ID.get(&row)), (3, 9));
        assert_eq!(order_line::DIST_INFO.get(&row), &[b'x'; 24]);
    }
}
