//! Durations and sizes with units: parses those of the command line and of the file of `serve`, and
//! formats those of text output.

use indicatif::BinaryBytes;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The longest duration that can be given: a day.
const MAX_DURATION: Duration = Duration::from_secs(86_400);

/// Parses a duration such as `10s`, `500ms` or `1m 30s`. A plain number is in seconds, with a fraction
/// if need be.
///
/// # Errors
///
/// If it is no duration, or longer than a day.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds = || Duration::try_from_secs_f64(text.parse().ok()?).ok();
    seconds()
        .or_else(|| humantime::parse_duration(text).ok())
        .filter(|duration| *duration <= MAX_DURATION)
        .ok_or_else(|| {
            format!(
                "it is not a duration up to {}h, such as 500ms, 10s or 1m30s",
                MAX_DURATION.as_secs() / 3600
            )
        })
}

/// Parses a size such as `4096`, `64k` or `1MiB`, in bytes. K, M and G are powers of 1024, with or
/// without `B` or `iB` behind them.
///
/// # Errors
///
/// If it is no size, or more than 2^64 bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    parse_size::Config::new()
        .with_binary()
        .parse_size(text)
        .map_err(|_| "it is not a size, such as 4096, 64k or 1MiB".to_owned())
}

/// Parser of an option whose value is a size in this range of bytes.
pub fn size_within<T>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: TryFrom<u64>,
{
    move |text| {
        let bytes = Some(parse_size(text)?).filter(|bytes| range.contains(bytes));
        bytes
            .and_then(|bytes| T::try_from(bytes).ok())
            .ok_or_else(|| {
                let (least, most) = (range.start(), range.end());
                format!("it is not {least} to {most}")
            })
    }
}

/// A duration in three digits, such as `8 us`, `1.02 ms` and `12 s`; from a minute on in its two
/// largest units, such as `3h 20m`.
pub fn duration(duration: Duration) -> String {
    const UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    if duration.as_secs() >= 60 {
        let whole = match duration.as_secs() {
            seconds @ ..3600 => seconds,
            seconds @ 3600..86_400 => seconds / 60 * 60,
            seconds => seconds / 3600 * 3600,
        };
        return humantime::format_duration(Duration::from_secs(whole)).to_string();
    }
    let nanoseconds = duration.as_secs_f64() * 1e9;
    // The first unit in which less than a thousand are left once they are rounded.
    let unit = UNITS.iter().find(|(_, one)| nanoseconds / one < 999.5);
    let (name, one) = unit.unwrap_or(&UNITS[UNITS.len() - 1]);
    format!("{} {name}", three_digits(nanoseconds / one))
}

/// A number below a thousand in three digits, without zeros at its end.
fn three_digits(number: f64) -> impl Display {
    let decimals = match number {
        ..9.995 => 2,
        9.995..99.95 => 1,
        _ => 0,
    };
    without_zeros(&format!("{number:.decimals$}")).to_owned()
}

/// A number without zeros at the end of its fraction.
fn without_zeros(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

/// A size in bytes with its unit, such as `512 B`, `4 KiB` and `148.56 MiB`.
pub fn size(bytes: u64) -> String {
    let text = BinaryBytes(bytes).to_string();
    match text.split_once(' ') {
        Some((digits, unit)) => format!("{} {unit}", without_zeros(digits)),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_with_units_and_plain_numbers_are_seconds() {
        let check = |text: &str, millis| {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(millis)),
                "{text}"
            );
        };
        check("0", 0);
        check("1.5", 1500);
        check("86400", 86_400_000);
        check("500ms", 500);
        check("10s", 10_000);
        check("1.5 s", 1500);
        check("1m 30s", 90_000);
        check("1m30s", 90_000);
        check("24h", 86_400_000);
    }

    #[test]
    fn durations_are_limited() {
        for bad in [
            "", "-1", "-1s", "86401", "25h", "inf", "NaN", "1x", "1e300", "s",
        ] {
            let error = parse_duration(bad).unwrap_err();
            assert!(error.contains("a duration up to 24h"), "{bad}: {error}");
        }
    }

    #[test]
    fn sizes_are_parsed_with_units_that_are_powers_of_1024() {
        let check = |text: &str, bytes| assert_eq!(parse_size(text), Ok(bytes), "{text}");
        check("4096", 4096);
        check("4K", 4096);
        check("64k", 64 << 10);
        check("64kB", 64 << 10);
        check("1MiB", 1 << 20);
        check("1.5G", 3 << 29);
        for bad in ["", "-1", "k", "1x", "0x10", "99999E"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn size_outside_its_range_is_refused_with_the_range() {
        let parse = size_within::<u16>(1024..=32 << 10);
        assert_eq!(parse("32k"), Ok(32 << 10));
        for bad in ["1023", "33k"] {
            assert_eq!(
                parse(bad),
                Err("it is not 1024 to 32768".to_owned()),
                "{bad}"
            );
        }
        assert!(size_within::<u8>(0..=1024)("256").is_err());
    }

    #[test]
    fn durations_have_three_digits_and_two_units() {
        let check = |nanos, expected: &str| {
            assert_eq!(duration(Duration::from_nanos(nanos)), expected);
        };
        check(0, "0 ns");
        check(999, "999 ns");
        check(1_000, "1 us");
        check(12_345, "12.3 us");
        check(999_499, "999 us");
        check(999_500, "1 ms");
        check(1_024_000, "1.02 ms");
        check(1_200_000, "1.2 ms");
        check(9_999_000, "10 ms");
        check(59_990_000_000, "60 s");
        check(90_000_000_000, "1m 30s");
        check(12_065_000_000_000, "3h 21m");
        check(273_600_000_000_000, "3days 4h");
    }

    #[test]
    fn sizes_have_their_unit() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(512), "512 B");
        assert_eq!(size(1000), "1000 B");
        assert_eq!(size(4 << 10), "4 KiB");
        assert_eq!(size(100 << 20), "100 MiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
        assert_eq!(size(155_777_000), "148.56 MiB");
    }
}
