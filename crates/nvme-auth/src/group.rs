//! The groups of Diffie and Hellman's exchange (RFC 7919).

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd, Resize};
use zeroize::{Zeroize, Zeroizing};

use crate::message::reason;

/// The bits of a private exponent: twice the strength of the strongest group, and more.
const EXPONENT_BITS: u32 = 512;

/// A group. Null means that there is no exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Null,
    Ffdhe2048,
    Ffdhe3072,
    Ffdhe4096,
    Ffdhe6144,
    Ffdhe8192,
}

impl Group {
    pub const ALL: [Self; 6] = [
        Self::Null,
        Self::Ffdhe2048,
        Self::Ffdhe3072,
        Self::Ffdhe4096,
        Self::Ffdhe6144,
        Self::Ffdhe8192,
    ];

    /// Returns the identifier in messages.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.number() == number)
    }

    /// Returns the name by which SPDK's client and nvme-cli call the group.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Ffdhe2048 => "ffdhe2048",
            Self::Ffdhe3072 => "ffdhe3072",
            Self::Ffdhe4096 => "ffdhe4096",
            Self::Ffdhe6144 => "ffdhe6144",
            Self::Ffdhe8192 => "ffdhe8192",
        }
    }

    /// Returns the bytes of a public value; 0 for the null group.
    #[must_use]
    pub fn len_bytes(self) -> usize {
        [0, 256, 384, 512, 768, 1024][self as usize]
    }

    /// Returns the prime of the group, or `None` for the null group.
    ///
    /// The prime is 2^b - 2^(b-64) + (floor(2^(b-130) e) + X) 2^64 - 1, with a small X of each
    /// group.
    fn prime(self) -> Option<Vec<u8>> {
        let offset: u32 = match self {
            Self::Null => return None,
            Self::Ffdhe2048 => 560_316,
            Self::Ffdhe3072 => 2_625_351,
            Self::Ffdhe4096 => 5_736_041,
            Self::Ffdhe6144 => 15_705_020,
            Self::Ffdhe8192 => 10_965_728,
        };
        let mut middle = digits(self.len_bytes() - 16);
        // The last term takes one from the digits, and leaves ones below them.
        let mut carry = u64::from(offset - 1);
        for byte in middle.iter_mut().rev() {
            carry += u64::from(*byte);
            *byte = carry as u8;
            carry >>= 8;
        }
        Some([&[0xFF; 8][..], &middle, &[0xFF; 8]].concat())
    }

    fn parameters(self) -> Option<BoxedMontyParams> {
        let prime = number(&self.prime()?)?;
        Some(BoxedMontyParams::new_vartime(Odd::new(prime).into_option()?))
    }
}

/// Returns the first bytes of the binary digits of e, from the second on.
fn digits(len: usize) -> Vec<u8> {
    let digit = |at: usize| (E.as_bytes()[at] as char).to_digit(16).unwrap_or_default() as u8;
    (0..len).map(|at| digit(2 * at) << 4 | digit(2 * at + 1)).collect()
}

/// Returns a number with the precision of its bytes.
fn number(bytes: &[u8]) -> Option<BoxedUint> {
    BoxedUint::from_be_slice(bytes, 8 * bytes.len() as u32).ok()
}

/// One end's part of an exchange.
pub(crate) struct Exchange {
    group: Group,
    parameters: BoxedMontyParams,
    exponent: BoxedUint,
    /// The value for the other end.
    pub(crate) public: Vec<u8>,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.exponent.zeroize();
    }
}

impl Exchange {
    /// Chooses an exponent; `None` for the null group.
    ///
    /// # Errors
    /// A reason, if the system has no random numbers.
    pub(crate) fn begin(group: Group) -> Result<Option<Self>, u8> {
        let Some(parameters) = group.parameters() else { return Ok(None) };
        let mut bytes = Zeroizing::new([0; EXPONENT_BITS as usize / 8]);
        crate::random(&mut *bytes)?;
        let exponent = number(&*bytes).ok_or(reason::FAILED)?;
        let two = BoxedUint::from(2u8).resize(8 * group.len_bytes() as u32);
        let public = BoxedMontyForm::new(two, &parameters).pow(&exponent).retrieve();
        Ok(Some(Self { group, parameters, exponent, public: public.to_be_bytes().into() }))
    }

    /// Returns the shared secret, as long as the group's prime.
    ///
    /// # Errors
    /// A reason, for a value of the other end that gives the secret away: 0, 1, -1 or none of the
    /// group. Other values have no small order, because the primes are safe.
    pub(crate) fn end(&self, other: &[u8]) -> Result<Zeroizing<Vec<u8>>, u8> {
        const WRONG: u8 = reason::DHGROUP_UNUSABLE;
        if other.len() != self.group.len_bytes() {
            return Err(reason::INCORRECT_PAYLOAD);
        }
        let value = number(other).ok_or(WRONG)?;
        let one = BoxedUint::one_with_precision(value.bits_precision());
        let last = self.parameters.modulus().as_ref().wrapping_sub(&one);
        if value <= one || value >= last {
            return Err(WRONG);
        }
        let mut shared =
            BoxedMontyForm::new(value, &self.parameters).pow(&self.exponent).retrieve();
        let mut bytes = shared.to_be_bytes();
        let secret = Zeroizing::new(bytes.to_vec());
        bytes.zeroize();
        shared.zeroize();
        Ok(secret)
    }
}

/// floor(2^8062 e) in hexadecimal digits.
const E: &str = "\
    adf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695a9e13641146433fbcc939dce249b3ef97d2f\
    e363630c75d8f681b202aec4617ad3df1ed5d5fd65612433f51f5f066ed0856365553ded1af3b557135e\
    7f57c935984f0c70e0e68b77e2a689daf3efe8721df158a136ade73530acca4f483a797abc0ab182b324\
    fb61d108a94bb2c8e3fbb96adab760d7f4681d4f42a3de394df4ae56ede76372bb190b07a7c8ee0a6d70\
    9e02fce1cdf7e2ecc03404cd28342f619172fe9ce98583ff8e4f1232eef28183c3fe3b1b4c6fad733bb5\
    fcbc2ec22005c58ef1837d1683b2c6f34a26c1b2effa886b4238611fcfdcde355b3b6519035bbc34f4de\
    f99c023861b46fc9d6e6c9077ad91d2691f7f7ee598cb0fac186d91caefe130985139270b4130c93bc43\
    7944f4fd4452e2d74dd364f2e21e71f54bff5cae82ab9c9df69ee86d2bc522363a0dabc521979b0deada\
    1dbf9a42d5c4484e0abcd06bfa53ddef3c1b20ee3fd59d7c25e41d2b669e1ef16e6f52c3164df4fb7930\
    e9e4e58857b6ac7d5f42d69f6d187763cf1d5503400487f55ba57e31cc7a7135c886efb4318aed6a1e01\
    2d9e6832a907600a918130c46dc778f971ad0038092999a333cb8b7a1a1db93d7140003c2a4ecea9f98d\
    0acc0a8291cdcec97dcf8ec9b55a7f88a46b4db5a851f44182e1c68a007e5e0dd9020bfd64b645036c7a\
    4e677d2c38532a3a23ba4442caf53ea63bb454329b7624c8917bdd64b1c0fd4cb38e8c334c701c3acdad\
    0657fccfec719b1f5c3e4e46041f388147fb4cfdb477a52471f7a9a96910b855322edb6340d8a00ef092\
    350511e30abec1fff9e3a26e7fb29f8c183023c3587e38da0077d9b4763e4e4b94b2bbc194c6651e77ca\
    f992eeaac0232a281bf6b3a739c1226116820ae8db5847a67cbef9c9091b462d538cd72b03746ae77f5e\
    62292c311562a846505dc82db854338ae49f5235c95b91178ccf2dd5cacef403ec9d1810c6272b045b3b\
    71f9dc6b80d63fdd4a8e9adb1e6962a69526d43161c1a41d570d7938dad4a40e329ccff46aaa36ad004c\
    f600c8381e425a31d951ae64fdb23fcec9509d43687feb69edd1cc5e0b8cc3bdf64b10ef86b63142a3ab\
    8829555b2f747c932665cb2c0f1cc01bd70229388839d2af05e454504ac78b7582822846c0ba35c35f5c\
    59160cc046fd8251541fc68c9c86b022bb7099876a460e7451a8a93109703fee1c217e6c3826e52c51aa\
    691e0e423cfc99e9e31650c1217b624816cdad9a95f9d5b8019488d9c0a0a1fe3075a577e23183f81d4a\
    3f2fa4571efc8ce0ba8a4fe8b6855dfe72b0a66eded2fbabfbe58a30fafabe1c5d71a87e2f741ef8c1fe\
    86fea6bbfde530677f0d97d11d49f7a8443d0822e506a9f4614e011e2a94838ff88cd68c8bb7c51eef6d";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Hash;

    /// The SHA-256 of each prime, computed by Python from the formula of RFC 7919; both the prime p
    /// and (p - 1) / 2 were found prime there.
    const SUMS: [&str; 5] = [
        "9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966",
        "0eaf67db3a839156d5013494a5318a772b5697d270d721f37f092efc69ea5a17",
        "4648414224ac881b3d0dc59b466f96d06a558278776807797ecf1f66ff397b3e",
        "227ac9066b3ddd9e193670cda2388fa884f65ba0cf98b742d1fe77a6687c79c7",
        "770b14efaf6f049929c523113b3fa99a8d11dab1b18af3609590122075d19833",
    ];

    #[test]
    fn the_primes_are_those_of_the_standard() {
        for (group, sum) in Group::ALL[1..].iter().zip(SUMS) {
            let prime = group.prime().unwrap();
            assert_eq!(prime.len(), group.len_bytes());
            let hex: String =
                Hash::Sha256.digest(&prime).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, sum, "{group:?}");
        }
    }

    #[test]
    fn both_ends_have_the_same_secret() {
        assert!(Exchange::begin(Group::Null).unwrap().is_none());
        for group in Group::ALL[1..].iter().take(3) {
            let one = Exchange::begin(*group).unwrap().unwrap();
            let other = Exchange::begin(*group).unwrap().unwrap();
            assert_ne!(one.public, other.public);
            let secret = one.end(&other.public).unwrap();
            assert_eq!(secret, other.end(&one.public).unwrap());
            assert_eq!(secret.len(), group.len_bytes());
        }
    }

    #[test]
    fn values_that_give_the_secret_away_are_refused() {
        let group = Group::Ffdhe2048;
        let exchange = Exchange::begin(group).unwrap().unwrap();
        let prime = group.prime().unwrap();
        let small = |value: u8| [vec![0; prime.len() - 1], vec![value]].concat();
        let mut minus_one = prime.clone();
        *minus_one.last_mut().unwrap() = 0xFE;
        for value in [small(0), small(1), minus_one, prime.clone(), vec![0xFF; prime.len()]] {
            assert!(exchange.end(&value).is_err());
        }
        assert!(exchange.end(&small(2)[1..]).is_err() && exchange.end(&[]).is_err());
        assert_eq!(*exchange.end(&small(2)).unwrap(), exchange.public);
    }
}
