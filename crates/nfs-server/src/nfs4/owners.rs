//! Owners and groups on the wire (RFC 8881 §5.9).
//!
//! Both are the decimal numbers of users and groups, as Linux has them with AUTH_SYS. RFC 8881 §5.9 asks servers that can
//! translate a number to a name to refuse it; this server does not translate, so that numbers mean what they mean in calls of
//! AUTH_SYS. Of names there is only `root`, with or without a domain: other names would need the user database, which may be
//! remote.

use nfs_proto::v4::Status;

/// The most digits of a number.
const DIGITS: usize = 10;

/// Largest size of an owner on the wire, with its length: ten digits.
pub(super) const MAX_WRITTEN: usize = 4 + DIGITS.next_multiple_of(4);

/// The number of a user or group in decimal digits, without an allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decimal {
    digits: [u8; DIGITS],
    /// The first digit.
    start: usize,
}

impl Decimal {
    /// Returns the digits of a number.
    pub(super) fn new(mut number: u32) -> Self {
        let (mut digits, mut start) = ([b'0'; DIGITS], DIGITS);
        loop {
            start -= 1;
            digits[start] += (number % 10).to_le_bytes()[0];
            number /= 10;
            if number == 0 {
                return Self { digits, start };
            }
        }
    }

    /// Returns the digits.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

/// Returns the number of a user or group.
///
/// # Errors
///
/// `NFS4ERR_INVAL` for an empty name, and for one that is not UTF-8 (RFC 8881 §14.5). `NFS4ERR_BADOWNER` for a name that has no
/// translation, for a number with leading zeros, which the RFC does not let be one, and for 2³²-1, which Linux gives to nobody.
pub(super) fn parse(name: &[u8]) -> Result<u32, Status> {
    let name = std::str::from_utf8(name).map_err(|_| Status::Invalid)?;
    if name.is_empty() {
        return Err(Status::Invalid);
    }
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        let is_plain = name == "0" || !name.starts_with('0');
        let number = name.parse().ok().filter(|&number| number != u32::MAX);
        return number.filter(|_| is_plain).ok_or(Status::BadOwner);
    }
    match name.split_once('@') {
        None if name == "root" => Ok(0),
        Some(("root", domain)) if !domain.is_empty() => Ok(0),
        None | Some(_) => Err(Status::BadOwner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_decimal_without_leading_zeros() {
        for number in [0, 7, 10, 1000, 65_534, u32::MAX - 1] {
            let digits = Decimal::new(number);
            assert_eq!(digits.as_bytes(), number.to_string().as_bytes());
            assert_eq!(parse(digits.as_bytes()), Ok(number));
        }
        for bad in [
            "00",
            "01",
            "4294967295",
            "4294967296",
            "99999999999999999999",
        ] {
            assert_eq!(parse(bad.as_bytes()), Err(Status::BadOwner), "{bad}");
        }
        for bad in ["+1", "-1", " 1", "1 ", "1e3", "0x10", "1000@"] {
            assert_eq!(parse(bad.as_bytes()), Err(Status::BadOwner), "{bad}");
        }
    }

    #[test]
    fn of_names_only_root_is_known() {
        assert_eq!(parse(b"root"), Ok(0));
        assert_eq!(parse(b"root@example.org"), Ok(0));
        for bad in [
            "Root",
            "root@",
            "@",
            "@example.org",
            "alice",
            "alice@example.org",
            "OWNER@",
        ] {
            assert_eq!(parse(bad.as_bytes()), Err(Status::BadOwner), "{bad}");
        }
    }

    #[test]
    fn owner_that_is_empty_or_no_text_is_invalid() {
        assert_eq!(parse(b""), Err(Status::Invalid));
        assert_eq!(parse(b"\xff"), Err(Status::Invalid));
    }

    proptest! {
        #[test]
        fn every_number_is_read_as_it_was_written(number in 0..u32::MAX) {
            let digits = Decimal::new(number);
            prop_assert!(digits.as_bytes().len() <= DIGITS);
            prop_assert_eq!(parse(digits.as_bytes()), Ok(number));
        }
    }
}
