//! Scales and tick labels of an axis.

/// How an axis grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// By equal steps.
    Linear,
    /// By powers of this, each with a tick. What is not above zero stands at the lower end.
    Log(u8),
}

/// Range of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// With the values.
    Values,
    /// At the ticks around the values.
    Ticks,
    /// The same, and zero is on it; on a logarithmic scale there is none.
    Zero,
}

/// Unit of numbers, which decides how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// As they are.
    Number,
    /// KiB and MiB from 1024 bytes on.
    Bytes,
}

impl Unit {
    /// For a tick of an axis.
    pub(super) fn tick(self, value: f64) -> String {
        const KIB: f64 = 1024.0;
        match self {
            Self::Bytes if value >= KIB * KIB => format!("{} MiB", rounded(value / KIB / KIB)),
            Self::Bytes if value >= KIB => format!("{} KiB", rounded(value / KIB)),
            Self::Number | Self::Bytes => rounded(value),
        }
    }

    /// For who wants to know.
    pub(super) fn exactly(self, value: f64) -> String {
        match self {
            Self::Number => trimmed(format!("{value:.4}")),
            Self::Bytes => self.tick(value),
        }
    }
}

/// With as many digits as matter, so that 0.30000000000000004 is 0.3.
fn rounded(value: f64) -> String {
    trimmed(format!("{value:.6}"))
}

fn trimmed(text: String) -> String {
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() {
        "0".into()
    } else {
        text.into()
    }
}

/// The values between the two ends of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    scale: Scale,
    low: f64,
    high: f64,
    /// Of ticks, on a linear scale.
    step: f64,
}

/// Steps of a linear axis: about so many.
const STEPS: f64 = 5.0;

impl Span {
    /// An axis for these values.
    pub(super) fn of(values: impl Iterator<Item = f64>, scale: Scale, reach: Reach) -> Self {
        let whole = reach != Reach::Values;
        let usable = |value: &f64| value.is_finite() && (scale == Scale::Linear || *value > 0.0);
        let (mut low, mut high) = values
            .filter(usable)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        if low > high {
            (low, high) = (1.0, 1.0);
        }
        match scale {
            Scale::Linear if reach == Reach::Zero => (low, high) = (low.min(0.0), high.max(0.0)),
            Scale::Log(base) if whole => {
                let exponent = |value: f64| value.log(f64::from(base));
                (low, high) = (
                    power(base, exponent(low).floor()),
                    power(base, exponent(high).ceil()),
                );
            }
            Scale::Linear | Scale::Log(_) => {}
        }
        if low == high {
            high = match scale {
                Scale::Linear => low + 1.0,
                Scale::Log(base) => low * f64::from(base),
            };
        }
        let step = step(high - low);
        if scale == Scale::Linear && whole {
            high = (high / step).ceil() * step;
            low = (low / step).floor() * step;
        }
        Self {
            scale,
            low,
            high,
            step,
        }
    }

    /// How far along the axis a value stands, from 0 to 1.
    pub(super) fn part(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log(_) if value > 0.0 => (value / self.low).ln() / (self.high / self.low).ln(),
            Scale::Log(_) => 0.0,
        };
        part.clamp(0.0, 1.0)
    }

    /// The values that are written along the axis.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let (first, factor) = match self.scale {
            Scale::Linear => {
                let first = (self.low / self.step).ceil();
                let last = (self.high / self.step + 1e-9).floor();
                let values = std::iter::successors(Some(first), |value| Some(value + 1.0));
                return values
                    .take_while(|&value| value <= last)
                    .map(|value| value * self.step)
                    .collect();
            }
            Scale::Log(base) => {
                let first = self.low.log(f64::from(base)).ceil();
                (power(base, first), f64::from(base))
            }
        };
        std::iter::successors(Some(first), |value| Some(value * factor))
            .take_while(|&value| value <= self.high * (1.0 + 1e-9))
            .collect()
    }
}

fn power(base: u8, exponent: f64) -> f64 {
    f64::from(base).powf(exponent)
}

/// A step of 1, 2 or 5 times a power of ten that divides `width` into a handful.
fn step(width: f64) -> f64 {
    let rough = width / STEPS;
    let power = 10_f64.powf(rough.log10().floor());
    match rough / power {
        part if part <= 1.0 => power,
        part if part <= 2.0 => 2.0 * power,
        part if part <= 5.0 => 5.0 * power,
        _ => 10.0 * power,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(values: &[f64], scale: Scale, reach: Reach) -> Vec<String> {
        let span = Span::of(values.iter().copied(), scale, reach);
        span.ticks()
            .into_iter()
            .map(|value| Unit::Bytes.tick(value))
            .collect()
    }

    #[test]
    fn ticks_are_round_and_reach_both_ends() {
        assert_eq!(
            ticks(&[0.2, 1.23], Scale::Linear, Reach::Zero),
            ["0", "0.5", "1", "1.5"]
        );
        assert_eq!(
            ticks(&[0.01, 0.29], Scale::Linear, Reach::Zero),
            ["0", "0.1", "0.2", "0.3"]
        );
        assert_eq!(
            ticks(&[512.0, 4096.0], Scale::Log(2), Reach::Values),
            ["512", "1 KiB", "2 KiB", "4 KiB"]
        );
        assert_eq!(
            ticks(&[3.0, 150.0], Scale::Log(10), Reach::Ticks),
            ["1", "10", "100", "1000"]
        );
        assert_eq!(
            ticks(&[1.5 * 1024.0 * 1024.0], Scale::Log(2), Reach::Ticks),
            ["1 MiB", "2 MiB"]
        );
    }

    #[test]
    fn an_axis_may_begin_where_the_values_do() {
        assert_eq!(
            ticks(&[0.83, 0.97], Scale::Linear, Reach::Ticks),
            ["0.8", "0.85", "0.9", "0.95", "1"]
        );
    }

    #[test]
    fn an_axis_without_values_has_ends_too() {
        for scale in [Scale::Linear, Scale::Log(2), Scale::Log(10)] {
            for values in [&[][..], &[0.0], &[f64::NAN]] {
                let span = Span::of(values.iter().copied(), scale, Reach::Zero);
                assert!(
                    span.low < span.high && span.ticks().len() >= 2,
                    "{scale:?} {values:?}"
                );
                assert!((0.0..=1.0).contains(&span.part(0.0)));
            }
        }
    }
}
