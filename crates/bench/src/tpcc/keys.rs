//! Keys: the columns in big-endian order, one after the other, so that keys sort as their columns
//! do. Each column has as many bytes as its numbers need: 2 for a warehouse, 1 for a district, 2
//! for a customer, 3 for an order or item, 1 for a line.

/// The greatest number of a warehouse.
pub(crate) const WAREHOUSE_MAX: u32 = u16::MAX as u32;
/// The greatest number of an order or item.
pub(crate) const NUMBER_MAX: u32 = 0xff_ffff;

/// The size of a last name and of a first name in an index, in bytes: the width of their columns.
pub(crate) const NAME_BYTES: usize = 16;

/// Concatenates pieces into a key of `N` bytes, which they must fill.
fn join<const N: usize>(pieces: &[&[u8]]) -> [u8; N] {
    let mut key = [0; N];
    let mut at = 0;
    for piece in pieces {
        key[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
    debug_assert_eq!(at, N);
    key
}

/// Returns the three bytes of the number of an order or item.
#[inline]
fn three(number: u32) -> [u8; 3] {
    let [_, high, middle, low] = number.to_be_bytes();
    [high, middle, low]
}

/// Returns the key of a warehouse: `W_ID`.
#[inline]
pub(crate) fn warehouse(w: u32) -> [u8; 2] {
    debug_assert!(w <= WAREHOUSE_MAX);
    let [.., high, low] = w.to_be_bytes();
    [high, low]
}

/// Returns the key of a district: `D_W_ID`, `D_ID`.
#[inline]
pub(crate) fn district(w: u32, d: u8) -> [u8; 3] {
    join(&[&warehouse(w), &[d]])
}

/// Returns the key of a customer: `C_W_ID`, `C_D_ID`, `C_ID`.
#[inline]
pub(crate) fn customer(w: u32, d: u8, c: u16) -> [u8; 5] {
    join(&[&warehouse(w), &[d], &c.to_be_bytes()])
}

/// Returns the key of a row of history: the run, the client, and the number of rows that the client
/// wrote before. History has no key in the standard.
#[inline]
pub(crate) fn history(run: u32, client: u32, number: u32) -> [u8; 12] {
    join(&[&run.to_be_bytes(), &client.to_be_bytes(), &number.to_be_bytes()])
}

/// Returns the key of a new order or an order: warehouse, district, `O_ID`.
#[inline]
pub(crate) fn order(w: u32, d: u8, o: u32) -> [u8; 6] {
    join(&[&warehouse(w), &[d], &three(o)])
}

/// Returns the key of an order line: `OL_W_ID`, `OL_D_ID`, `OL_O_ID`, `OL_NUMBER`.
#[inline]
pub(crate) fn order_line(w: u32, d: u8, o: u32, number: u8) -> [u8; 7] {
    join(&[&warehouse(w), &[d], &three(o), &[number]])
}

/// Returns the key of an item: `I_ID`.
#[inline]
pub(crate) fn item(i: u32) -> [u8; 3] {
    three(i)
}

/// Returns the key of a stock row: `S_W_ID`, `S_I_ID`.
#[inline]
pub(crate) fn stock(w: u32, i: u32) -> [u8; 5] {
    join(&[&warehouse(w), &three(i)])
}

/// Returns the key of a customer in the index by name: warehouse, district, `C_LAST`, `C_FIRST`,
/// `C_ID`.
#[inline]
pub(crate) fn customer_by_name(
    w: u32,
    d: u8,
    last: &[u8; NAME_BYTES],
    first: &[u8; NAME_BYTES],
    c: u16,
) -> [u8; 37] {
    join(&[&warehouse(w), &[d], last, first, &c.to_be_bytes()])
}

/// Returns the first key of the customers of a name, and the first key beyond them.
#[inline]
pub(crate) fn customers_of_name(w: u32, d: u8, last: &[u8; NAME_BYTES]) -> ([u8; 19], [u8; 20]) {
    // Names have no byte above 0x7f, so the first byte of a first name is never 0xff.
    (join(&[&warehouse(w), &[d], last]), join(&[&warehouse(w), &[d], last, &[0xff]]))
}

/// Returns the key of an order in the index by customer, the newest first: warehouse, district,
/// customer, the complement of `O_ID`.
#[inline]
pub(crate) fn order_by_customer(w: u32, d: u8, c: u16, o: u32) -> [u8; 8] {
    join(&[&warehouse(w), &[d], &c.to_be_bytes(), &three(!o)])
}

/// Returns the order in a key of [`order_by_customer`].
pub(crate) fn order_of(key: &[u8]) -> Option<u32> {
    Some(NUMBER_MAX - number_at(key, 5)?)
}

/// Returns the customer in a key of [`customer_by_name`].
pub(crate) fn customer_of_name(key: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(key.get(35..37)?.try_into().ok()?))
}

/// Returns the warehouse, district and order at the head of a key.
pub(crate) fn order_id(key: &[u8]) -> Option<(u32, u8, u32)> {
    let (w, d) = district_id(key)?;
    Some((w, d, number_at(key, 3)?))
}

/// Returns the warehouse and district at the head of a key.
pub(crate) fn district_id(key: &[u8]) -> Option<(u32, u8)> {
    Some((warehouse_id(key)?, *key.get(2)?))
}

/// Returns the warehouse at the head of a key.
pub(crate) fn warehouse_id(key: &[u8]) -> Option<u32> {
    Some(u16::from_be_bytes(*key.first_chunk()?).into())
}

/// Returns the number of the order or item whose bytes begin at `at`.
fn number_at(key: &[u8], at: usize) -> Option<u32> {
    let [high, middle, low] = *key.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes([0, high, middle, low]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padded(name: &[u8]) -> [u8; NAME_BYTES] {
        let mut padded = [0; NAME_BYTES];
        padded[..name.len()].copy_from_slice(name);
        padded
    }

    #[test]
    fn keys_sort_as_columns_do() {
        assert!(order(1, 2, 255) < order(1, 2, 256));
        assert!(order(1, 2, NUMBER_MAX) < order(1, 3, 0));
        assert!(order(255, 10, 9) < order(256, 1, 0));
        assert!(order_line(1, 1, 7, 15)[..] < order_line(1, 1, 8, 1)[..]);
        assert!(order_by_customer(1, 1, 5, 9) < order_by_customer(1, 1, 5, 8));
        assert!(order_by_customer(1, 1, 5, 0) < order_by_customer(1, 1, 6, NUMBER_MAX));
        assert_eq!(order_of(&order_by_customer(1, 1, 5, 77)), Some(77));
        assert_eq!(order_id(&order(3, 4, 5)), Some((3, 4, 5)));
    }

    #[test]
    fn a_name_has_its_customers_and_no_other() {
        let (bar, bara) = (padded(b"BAR"), padded(b"BARA"));
        let (from, to) = customers_of_name(1, 2, &bar);
        let key = customer_by_name(1, 2, &bar, &padded(b"zz"), 9);
        assert!(from[..] < key[..] && key[..] < to[..]);
        assert_eq!(customer_of_name(&key), Some(9));
        let other = customer_by_name(1, 2, &bara, &padded(b""), 0);
        assert!(other[..] >= to[..]);
    }
}
