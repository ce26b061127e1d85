//! Times of files, in the calendar of a time zone.

use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use nfs_proto::NfsTime;
use std::str::FromStr;

/// Seconds for which a time is recent, to `ls`: half of a Gregorian year, whose mean is 31,556,952 s.
const RECENT: i64 = 31_556_952 / 2;

/// How `ls -l` shows times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TimeStyle {
    /// `2026-11-23 05:40:12.123456789 +0100`
    FullIso,
    /// `2026-11-23 05:40`
    LongIso,
    /// `11-23 05:40`, and `2024-11-23 ` if it is not recent.
    Iso,
    /// `Nov 23 05:40`, and `Nov 23  2024` if it is not recent.
    Locale,
    /// As strftime(3) formats it.
    Format(String),
}

impl FromStr for TimeStyle {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "full-iso" => Self::FullIso,
            "long-iso" => Self::LongIso,
            "iso" => Self::Iso,
            "locale" => Self::Locale,
            text => {
                let format = text.strip_prefix('+').ok_or(
                    "it is none of full-iso, long-iso, iso, locale and +FORMAT, as of date(1)",
                )?;
                strtime::format(format, &zoned(NfsTime::default(), &TimeZone::UTC))
                    .map_err(|error| error.to_string())?;
                Self::Format(format.to_owned())
            }
        })
    }
}

/// The time zone of the user, and the time when the command began.
pub(crate) struct Clock {
    zone: TimeZone,
    now: Timestamp,
}

impl Clock {
    /// The clock and the time zone of this machine; `TZ` says another zone.
    pub(crate) fn system() -> Self {
        Self {
            zone: TimeZone::system(),
            now: Timestamp::now(),
        }
    }

    /// A time as `ls -l` shows it.
    pub(crate) fn styled(&self, time: NfsTime, style: &TimeStyle) -> String {
        let recent = self.is_recent(time);
        let format = match style {
            TimeStyle::FullIso => FULL,
            TimeStyle::LongIso => "%Y-%m-%d %H:%M",
            TimeStyle::Iso if recent => "%m-%d %H:%M",
            TimeStyle::Iso => "%Y-%m-%d ",
            TimeStyle::Locale if recent => "%b %e %H:%M",
            TimeStyle::Locale => "%b %e  %Y",
            TimeStyle::Format(format) => format,
        };
        format_or_nothing(format, &zoned(time, &self.zone))
    }

    /// A time in full, with nanoseconds and its offset from UTC.
    pub(crate) fn in_full(&self, time: NfsTime) -> String {
        format_or_nothing(FULL, &zoned(time, &self.zone))
    }

    fn is_recent(&self, time: NfsTime) -> bool {
        let time = timestamp(time);
        time <= self.now && self.now.as_second() - time.as_second() < RECENT
    }
}

/// A time in full.
const FULL: &str = "%Y-%m-%d %H:%M:%S.%9f %z";

/// A time for programs, in UTC (RFC 3339).
pub(crate) fn rfc3339(time: NfsTime) -> String {
    format!("{:.9}", timestamp(time))
}

/// A format that was tried before says nothing only of what it cannot say.
fn format_or_nothing(format: &str, time: &Zoned) -> String {
    strtime::format(format, time).unwrap_or_default()
}

fn zoned(time: NfsTime, zone: &TimeZone) -> Zoned {
    timestamp(time).to_zoned(zone.clone())
}

/// More nanoseconds than a second has are those of its end.
fn timestamp(time: NfsTime) -> Timestamp {
    let nanoseconds = time.nanoseconds.min(999_999_999);
    let nanoseconds = i32::try_from(nanoseconds).unwrap_or_default();
    Timestamp::new(time.seconds.into(), nanoseconds).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u32) -> NfsTime {
        NfsTime {
            seconds,
            nanoseconds: 5,
        }
    }

    /// 2024-12-31 23:59:59 UTC.
    const NOW: u32 = 1_735_689_599;

    fn clock(zone: &str) -> Clock {
        Clock {
            zone: TimeZone::posix(zone).unwrap(),
            now: timestamp(at(NOW)),
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let check = |seconds, expected: &str| assert_eq!(rfc3339(at(seconds)), expected);
        check(0, "1970-01-01T00:00:00.000000005Z");
        check(951_782_400, "2000-02-29T00:00:00.000000005Z");
        check(NOW, "2024-12-31T23:59:59.000000005Z");
        check(u32::MAX, "2106-02-07T06:28:15.000000005Z");
    }

    #[test]
    fn nanoseconds_of_a_server_that_are_more_than_a_second_are_cut() {
        let time = NfsTime {
            seconds: 0,
            nanoseconds: u32::MAX,
        };
        assert_eq!(rfc3339(time), "1970-01-01T00:00:00.999999999Z");
    }

    #[test]
    fn times_are_shown_in_each_style_and_in_the_time_zone() {
        let check = |style: &str, seconds, expected: &str| {
            let style = style.parse().unwrap();
            let shown = clock("CET-1").styled(at(seconds), &style);
            assert_eq!(shown, expected);
        };
        check("locale", NOW, "Jan  1 00:59");
        check("locale", 0, "Jan  1  1970");
        check("iso", NOW, "01-01 00:59");
        check("iso", 0, "1970-01-01 ");
        check("long-iso", NOW, "2025-01-01 00:59");
        check("full-iso", NOW, "2025-01-01 00:59:59.000000005 +0100");
        check("+%s %F", NOW, "1735689599 2025-01-01");
    }

    #[test]
    fn time_is_recent_for_half_a_year_and_not_in_the_future() {
        let clock = clock("UTC0");
        let recent = |seconds| clock.is_recent(at(seconds));
        let half = u32::try_from(RECENT).unwrap();
        assert!(recent(NOW) && recent(NOW - half + 1));
        assert!(!recent(NOW - half) && !recent(NOW + 1));
    }

    #[test]
    fn style_that_is_none_is_refused() {
        for bad in ["", "ISO", "%F", "+%!"] {
            assert!(bad.parse::<TimeStyle>().is_err(), "{bad}");
        }
    }
}
