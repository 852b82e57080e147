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

/// Defines the columns of tables. Each column begins where the one before it ends, and a row ends
/// with its last column, or where the table says.
macro_rules! columns {
    (@ $at:expr;) => {
        pub(crate) const BYTES: usize = $at;
    };
    (@ $at:expr; .. $bytes:literal) => {
        pub(crate) const BYTES: usize = $bytes;
    };
    (@ $at:expr; $(#[$doc:meta])* $name:ident: Text($width:expr), $($rest:tt)*) => {
        $(#[$doc])*
        pub(crate) const $name: Text = Text($at, $width);
        columns!(@ $name.0 + $name.1; $($rest)*);
    };
    (@ $at:expr; $(#[$doc:meta])* $name:ident: $type:ident, $($rest:tt)*) => {
        $(#[$doc])*
        pub(crate) const $name: $type = $type($at);
        columns!(@ $name.0 + $type::BYTES; $($rest)*);
    };
    ($($table:ident { $($columns:tt)* })+) => {
        $(pub(crate) mod $table {
            use crate::tpcc::rows::*;
            columns!(@ 0; $($columns)*);
        })+
    };
}

columns! {
    warehouse { NAME: Text(10), ADDRESS: Text(ADDRESS_BYTES), TAX: I32, YTD: I64, }
    district {
        NAME: Text(10), ADDRESS: Text(ADDRESS_BYTES), TAX: I32, YTD: I64, NEXT_O_ID: U32,
    }
    customer {
        FIRST: Text(16), MIDDLE: Text(2), LAST: Text(16), ADDRESS: Text(ADDRESS_BYTES),
        PHONE: Text(16), SINCE: U64, CREDIT: Text(2), CREDIT_LIM: I32, DISCOUNT: I32, BALANCE: I64,
        YTD_PAYMENT: I64, PAYMENT_CNT: U32, DELIVERY_CNT: U32, DATA: Text(500),
    }
    history {
        C_W_ID: U32, C_D_ID: U8, C_ID: U16, W_ID: U32, D_ID: U8, DATE: U64, AMOUNT: I32,
        DATA: Text(24),
    }
    // With its key of 6 bytes, a row is about as wide as in the standard.
    order {
        C_ID: U16, ENTRY_D: U64,
        /// The carrier; 0 if the order is not delivered.
        CARRIER_ID: U8,
        OL_CNT: U8, ALL_LOCAL: U8, ..16
    }
    order_line {
        I_ID: U32, SUPPLY_W_ID: U32,
        /// The time of the delivery; 0 if the line is not delivered.
        DELIVERY_D: U64,
        QUANTITY: U8, AMOUNT: I32, DIST_INFO: Text(24),
    }
    item { IM_ID: U32, NAME: Text(24), PRICE: I32, DATA: Text(50), }
    stock {
        QUANTITY: I32, YTD: U32, ORDER_CNT: U32, REMOTE_CNT: U32, DATA: Text(50), DISTS: Text(240),
    }
}

/// Returns the column with a stock's information for a district, from 1 to 10.
pub(crate) const fn dist(district: u8) -> Text {
    Text(stock::DISTS.0 + 24 * (district as usize - 1), 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores are loaded once and used by later builds, so columns must not move.
    #[test]
    fn columns_are_where_they_always_were() {
        let texts = [customer::CREDIT, customer::DATA, history::DATA, order_line::DIST_INFO];
        assert_eq!(texts.map(|text| text.0), [129, 163, 24, 21]);
        assert_eq!((warehouse::YTD.0, district::NEXT_O_ID.0, order::ALL_LOCAL.0), (85, 93, 12));
        assert_eq!((customer::BALANCE.0, item::PRICE.0, dist(10).0 + 24), (139, 28, stock::BYTES));
        assert_eq!([order::BYTES, customer::BYTES, stock::BYTES], [16, 663, 306]);
        let mut row = [0xff; order_line::BYTES];
        order_line::DIST_INFO.set(&mut row, b"x");
        order_line::AMOUNT.set(&mut row, -2);
        order_line::AMOUNT.add(&mut row, 1);
        assert_eq!((order_line::QUANTITY.get(&row), order_line::AMOUNT.get(&row)), (0xff, -1));
        assert_eq!(
            order_line::DIST_INFO.get(&row),
            b"x\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
        );
    }
}
