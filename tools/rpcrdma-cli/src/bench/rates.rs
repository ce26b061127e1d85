//! Rates as they are shown.

use printing::units;

/// A rate in three digits, such as `873` and `51.2k`.
pub(super) fn rate(value: f64) -> String {
    let (value, unit) = match value {
        ..999.5 => (value, ""),
        ..999_500.0 => (value / 1e3, "k"),
        _ => (value / 1e6, "M"),
    };
    match value {
        ..9.995 => format!("{value:.2}{unit}"),
        ..99.95 => format!("{value:.1}{unit}"),
        _ => format!("{value:.0}{unit}"),
    }
}

/// Bytes per second with their unit.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is not negative, and saturates"
)]
pub(super) fn bandwidth(bytes: f64) -> String {
    format!("{}/s", units::size(bytes as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits() {
        let check = |value, expected: &str| assert_eq!(rate(value), expected);
        check(0.0, "0.00");
        check(9.994, "9.99");
        check(873.4, "873");
        check(999.6, "1.00k");
        check(51_234.0, "51.2k");
        check(999_600.0, "1.00M");
        check(1_234_567.0, "1.23M");
    }
}
