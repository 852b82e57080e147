//! Random numbers, names and texts as the standard requires them (TPC-C 2.1.6, 4.3.2).

use fastrand::Rng;

/// The constants that shift the hot names, customers and items (TPC-C 2.1.6.1). The names' constant
/// of a run differs from that of the load by 86, which the standard allows.
const C_LAST_LOAD: u32 = 123;
const C_LAST_RUN: u32 = 209;
const C_ID: u32 = 259;
const OL_I_ID: u32 = 7911;

/// Returns a non-uniform number: `((random(0, a) | random(x, y)) + c) % (y - x + 1) + x`.
fn nurand(random: &mut Rng, a: u32, c: u32, x: u32, y: u32) -> u32 {
    ((random.u32(0..=a) | random.u32(x..=y)) + c) % (y - x + 1) + x
}

/// Draws a customer, from 1 to `customers`.
pub(crate) fn customer_id(random: &mut Rng, customers: u16) -> u16 {
    nurand(random, 1023, C_ID, 1, u32::from(customers)) as u16
}

/// Draws an item, from 1 to `items`.
pub(crate) fn item_id(random: &mut Rng, items: u32) -> u32 {
    nurand(random, 8191, OL_I_ID, 1, items)
}

/// Draws the number of a last name in a run, below `names`.
pub(crate) fn last_name_number(random: &mut Rng, names: u16) -> u16 {
    nurand(random, 255, C_LAST_RUN, 0, u32::from(names) - 1) as u16
}

/// Returns the number of a last name for a loaded customer that is not one of the first `names`.
pub(crate) fn loaded_name_number(random: &mut Rng, names: u16) -> u16 {
    nurand(random, 255, C_LAST_LOAD, 0, u32::from(names) - 1) as u16
}

/// Writes a last name, three syllables by the digits of its number, and returns its length.
pub(crate) fn last_name(number: u16, target: &mut [u8; 16]) -> usize {
    const SYLLABLES: [&[u8]; 10] =
        [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];
    target.fill(0);
    let mut len = 0;
    for digit in [number / 100 % 10, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[usize::from(digit)];
        target[len..len + syllable.len()].copy_from_slice(syllable);
        len += syllable.len();
    }
    len
}

/// Fills a column with random letters and digits: at least `min` bytes, followed by zeroes.
pub(crate) fn text(random: &mut Rng, min: usize, column: &mut [u8]) {
    const LETTERS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz.-";
    let len = random.usize(min..=column.len());
    let (filled, rest) = column.split_at_mut(len);
    // Each random number gives ten letters of six bits.
    for chunk in filled.chunks_mut(10) {
        let mut bits = random.u64(..);
        for byte in chunk {
            *byte = LETTERS[(bits & 63) as usize];
            bits >>= 6;
        }
    }
    rest.fill(0);
}

/// Fills a column with random digits.
pub(crate) fn digits(random: &mut Rng, column: &mut [u8]) {
    for byte in column {
        *byte = b'0' + random.u8(0..10);
    }
}

/// Fills an address: two streets, city, state, zip code.
pub(crate) fn address(random: &mut Rng, column: &mut [u8]) {
    for street_or_city in column[..60].chunks_mut(20) {
        text(random, 10, street_or_city);
    }
    for letter in &mut column[60..62] {
        *letter = random.u8(b'A'..=b'Z');
    }
    digits(random, &mut column[62..66]);
    column[66..71].copy_from_slice(b"11111");
}

/// Fills the data of an item or stock with random text; one of ten has the word ORIGINAL in it.
pub(crate) fn data(random: &mut Rng, column: &mut [u8]) {
    const WORD: &[u8] = b"ORIGINAL";
    text(random, 26, column);
    if random.u8(0..10) == 0 {
        let at = random.usize(0..=26 - WORD.len());
        column[at..at + WORD.len()].copy_from_slice(WORD);
    }
}

/// Returns the generator of one row or group of rows, so that the loaded data does not depend on
/// the order of loading.
pub(crate) fn row(seed: u64, table: u64, a: u64, b: u64) -> Rng {
    // Each number goes through a 64-bit mixer (splitmix64), so that neighbours give unrelated
    // results.
    let mix = |mut word: u64| {
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    };
    let step = 0x9e37_79b9_7f4a_7c15_u64;
    let seed = mix(seed.wrapping_add(step).wrapping_add(table));
    Rng::with_seed(mix(mix(seed ^ a.wrapping_mul(step)).wrapping_add(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_uniform_numbers_stay_in_their_range() {
        let mut random = Rng::with_seed(1);
        let mut seen = vec![0_u32; 3001];
        for _ in 0..300_000 {
            seen[usize::from(customer_id(&mut random, 3000))] += 1;
        }
        assert_eq!(seen[0], 0);
        // The bitwise or of two numbers seldom has few ones, so some customers come up once in a
        // million draws.
        assert!(seen[1..].iter().filter(|&&count| count > 0).count() > 2700);
        // The bitwise or of two numbers is not uniform: some numbers come up many times more often.
        assert!(seen.iter().max() > Some(&400), "the hottest: {:?}", seen.iter().max());
        for _ in 0..100_000 {
            assert!((1..=100_000).contains(&item_id(&mut random, 100_000)));
            assert!(last_name_number(&mut random, 1000) < 1000);
            assert!(loaded_name_number(&mut random, 7) < 7);
            assert!((1..=20).contains(&item_id(&mut random, 20)));
        }
    }

    #[test]
    fn names_are_syllables() {
        let mut name = [0; 16];
        let mut of = |number| {
            let len = last_name(number, &mut name);
            String::from_utf8(name[..len].to_vec()).unwrap()
        };
        assert_eq!(of(0), "BARBARBAR");
        assert_eq!(of(371), "PRICALLYOUGHT");
        assert_eq!(of(999), "EINGEINGEING");
    }

    #[test]
    fn texts_fill_their_columns() {
        let mut random = Rng::with_seed(2);
        let mut column = [0xff; 50];
        let mut originals = 0;
        for _ in 0..1000 {
            data(&mut random, &mut column);
            let len = column.iter().position(|&byte| byte == 0).unwrap_or(50);
            assert!(len >= 26 && column[len..].iter().all(|&byte| byte == 0));
            assert!(column.iter().all(|byte| byte.is_ascii()));
            originals += usize::from(column.windows(8).any(|window| window == b"ORIGINAL"));
        }
        assert!((50..200).contains(&originals), "{originals}");
        let mut place = [0; 71];
        address(&mut random, &mut place);
        assert!(place[60..62].iter().all(u8::is_ascii_uppercase) && place.ends_with(b"11111"));
    }
}
