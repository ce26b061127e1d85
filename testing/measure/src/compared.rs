//! Comparison of two figures that are measured in turn, round by round.
//!
//! The speed of a machine drifts, so the ratio is taken within each round.

use anyhow::Result;

/// Two figures and the ratio of the second to the first, each over all rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared {
    pub(crate) first: Spread,
    pub(crate) second: Spread,
    pub(crate) ratio: Spread,
}

impl Compared {
    /// Measures both, `rounds` times in turn.
    ///
    /// # Errors
    ///
    /// One of them cannot be measured.
    pub(crate) fn in_turn(
        rounds: usize,
        mut first: impl FnMut() -> Result<f64>,
        mut second: impl FnMut() -> Result<f64>,
    ) -> Result<Self> {
        let pairs: Result<Vec<_>> = (0..rounds).map(|_| Ok((first()?, second()?))).collect();
        Ok(Self::of(&pairs?))
    }

    /// Compares the first figure of each round with the second.
    pub(crate) fn of(rounds: &[(f64, f64)]) -> Self {
        let spread = |figure: fn(&(f64, f64)) -> f64| Spread::of(rounds.iter().map(figure));
        Self {
            first: spread(|round| round.0),
            second: spread(|round| round.1),
            ratio: spread(|round| round.1 / round.0),
        }
    }
}

/// The lowest, the median and the highest of some values; NaN if there are none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) lowest: f64,
    pub(crate) median: f64,
    pub(crate) highest: f64,
}

impl Spread {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Self {
            lowest: at(0),
            median: f64::midpoint(at(values.len().saturating_sub(1) / 2), at(values.len() / 2)),
            highest: at(values.len().saturating_sub(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_the_median_of_the_ratios_of_the_rounds() {
        let compared = Compared::of(&[(1.0, 3.0), (2.0, 2.0), (4.0, 8.0)]);
        let spread = |lowest, median, highest| Spread {
            lowest,
            median,
            highest,
        };
        assert_eq!(compared.first, spread(1.0, 2.0, 4.0));
        assert_eq!(compared.second, spread(2.0, 3.0, 8.0));
        assert_eq!(compared.ratio, spread(1.0, 2.0, 3.0));
        assert_eq!(Compared::of(&[(2.0, 1.0), (4.0, 1.0)]).first.median, 3.0);
        assert!(Compared::of(&[]).ratio.median.is_nan());
    }

    #[test]
    fn figures_are_measured_in_turn() {
        let order = std::cell::RefCell::new(String::new());
        let measure = |name: char| {
            order.borrow_mut().push(name);
            Ok(1.0)
        };
        Compared::in_turn(3, || measure('a'), || measure('b')).unwrap();
        assert_eq!(order.into_inner(), "ababab");
    }
}
