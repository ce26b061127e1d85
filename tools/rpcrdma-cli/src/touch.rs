//! `rpcrdma touch`: sets times, and makes empty files.

use crate::failure::{Ended, Usage};
use crate::session::{Session, SessionArgs, umask_at};
use crate::show;
use anyhow::{Context, bail};
use clap::{ArgAction, Args};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use nfs_client::NfsUrl;
use nfs_copy::{Follow, Of};
use nfs_proto::args::CreateHow;
use nfs_proto::{NfsTime, SetAttributes, SetTime, Status};
use parse_datetime::{ParsedDateTime, parse_datetime_at_date};
use std::path::{Path, PathBuf};

/// Set the times of files; make missing files
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  rpcrdma touch nfs://127.0.0.1/file
  rpcrdma touch -c -d '2 hours ago' nfs://127.0.0.1/file
  rpcrdma touch -m -d '2026-11-23 05:40' nfs://127.0.0.1/a
  rpcrdma touch -t 202611230540.12 nfs://127.0.0.1/file
  rpcrdma touch -r nfs://127.0.0.1/a nfs://127.0.0.1/b

Without -d, -t and -r, the time is that of the server's clock. Dates without a time zone are in \
TZ. NFSv3 stores times from 1970 to 2106."
)]
pub(crate) struct TouchArgs {
    /// nfs://HOST[:PORT]/PATH of files
    #[arg(value_name = "URL", required = true)]
    urls: Vec<NfsUrl>,

    /// Set only the time of the last access
    #[arg(short = 'a')]
    accessed: bool,

    /// Set only the time of the last modification
    #[arg(short = 'm')]
    modified: bool,

    /// Do not make missing files
    #[arg(short = 'c', long)]
    no_create: bool,

    /// Set the times of symbolic links themselves; do not make missing files
    #[arg(short = 'h', long)]
    no_dereference: bool,

    /// Use this time, in a form of date(1): `2026-11-23 05:40`, `yesterday`, `2 days ago`,
    /// `@1795412412`
    #[arg(short, long, value_name = "DATE", allow_hyphen_values = true,
        conflicts_with_all = ["stamp", "reference"])]
    date: Option<String>,

    /// Use this time: [[CC]YY]MMDDhhmm[.ss]
    #[arg(short = 't', value_name = "STAMP", conflicts_with = "reference")]
    stamp: Option<String>,

    /// Use the times of this file: a URL, or a path on this machine
    #[arg(short, long, value_name = "URL|PATH")]
    reference: Option<PathBuf>,

    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,

    #[command(flatten)]
    session: SessionArgs,
}

/// The times to set.
#[derive(Clone, Copy)]
struct Times {
    atime: SetTime,
    mtime: SetTime,
}

/// Runs the command.
pub(crate) async fn run(args: &TouchArgs) -> anyhow::Result<Ended> {
    let mut session = Session::new(&args.session);
    let times = args.times(&mut session).await?;
    let mut ended = Ended::Well;
    for url in &args.urls {
        let touched = one(&mut session, url, args, times).await;
        ended.check(touched)?;
    }
    session.close().await;
    Ok(ended)
}

impl TouchArgs {
    /// The times to set: both, unless only one is wanted.
    async fn times(&self, session: &mut Session) -> anyhow::Result<Times> {
        let now = Zoned::now();
        let (atime, mtime) = match (&self.date, &self.stamp, &self.reference) {
            (Some(date), _, _) => both(parse_date(date, now)?),
            (_, Some(stamp), _) => both(parse_stamp(stamp, &now)?),
            (_, _, Some(path)) => reference(session, path).await?,
            (None, None, None) => (SetTime::ServerTime, SetTime::ServerTime),
        };
        let only = |this: bool, other: bool, time| match !this && other {
            true => SetTime::DontChange,
            false => time,
        };
        Ok(Times {
            atime: only(self.accessed, self.modified, atime),
            mtime: only(self.modified, self.accessed, mtime),
        })
    }
}

fn both(time: NfsTime) -> (SetTime, SetTime) {
    (SetTime::ClientTime(time), SetTime::ClientTime(time))
}

/// The times of a file of a server or of this machine.
async fn reference(session: &mut Session, path: &Path) -> anyhow::Result<(SetTime, SetTime)> {
    let (atime, mtime) = match path.to_str().filter(|text| text.starts_with("nfs://")) {
        Some(text) => {
            let url: NfsUrl = text
                .parse()
                .map_err(|error| Usage(format!("{text}: {error}")))?;
            let place = session.place(&url).await?;
            let Some(node) = place.find(Follow::Yes).await? else {
                bail!(place.fault("find", Status::NoEntry));
            };
            (node.attributes.atime, node.attributes.mtime)
        }
        None => {
            let unreadable = || format!("{}: cannot read", show::path(path));
            let about = path.metadata().with_context(unreadable)?;
            let accessed = about.accessed().with_context(unreadable)?;
            let modified = about.modified().with_context(unreadable)?;
            (accessed.into(), modified.into())
        }
    };
    Ok((SetTime::ClientTime(atime), SetTime::ClientTime(mtime)))
}

/// A date as date(1) understands it.
fn parse_date(text: &str, now: Zoned) -> Result<NfsTime, Usage> {
    match parse_datetime_at_date(now, text) {
        Ok(ParsedDateTime::InRange(time)) => nfs_time(text, time.timestamp()),
        Ok(ParsedDateTime::Extended(_)) => Err(out_of_range(text)),
        Err(_) => Err(Usage(format!(
            "{text:?} is not a date, such as '2026-11-23 05:40', 'yesterday' or '2 days ago'"
        ))),
    }
}

/// `[[CC]YY]MMDDhhmm[.ss]`: without a century, years from 69 on are of the last one (POSIX, touch).
fn parse_stamp(text: &str, now: &Zoned) -> Result<NfsTime, Usage> {
    let no_stamp = || Usage(format!("{text:?} is not a time as [[CC]YY]MMDDhhmm[.ss]"));
    let (digits, seconds) = text.split_once('.').unwrap_or((text, "00"));
    let all = digits.bytes().chain(seconds.bytes());
    if !all.clone().all(|digit| digit.is_ascii_digit()) || seconds.len() != 2 {
        return Err(no_stamp());
    }
    let year = match digits.len() {
        8 => format!("{:04}", now.year()),
        10 if &digits[..2] < "69" => format!("20{}", &digits[..2]),
        10 => format!("19{}", &digits[..2]),
        12 => digits[..4].to_owned(),
        _ => return Err(no_stamp()),
    };
    let rest = &digits[digits.len() - 8..];
    let local = DateTime::strptime("%Y%m%d%H%M%S", format!("{year}{rest}{seconds}"));
    let local = local.map_err(|_| no_stamp())?;
    let time = now
        .time_zone()
        .to_timestamp(local)
        .map_err(|_| no_stamp())?;
    nfs_time(text, time)
}

fn nfs_time(text: &str, time: Timestamp) -> Result<NfsTime, Usage> {
    let seconds = u32::try_from(time.as_second()).ok();
    let nanoseconds = u32::try_from(time.subsec_nanosecond()).ok();
    match (seconds, nanoseconds) {
        (Some(seconds), Some(nanoseconds)) => Ok(NfsTime {
            seconds,
            nanoseconds,
        }),
        _ => Err(out_of_range(text)),
    }
}

fn out_of_range(text: &str) -> Usage {
    let end = Timestamp::new(u32::MAX.into(), 0).unwrap_or_default();
    let end = end.to_zoned(TimeZone::UTC).date();
    Usage(format!(
        "{text:?} is a time that NFS version 3 does not have: from 1970-01-01 to {end}"
    ))
}

async fn one(
    session: &mut Session,
    url: &NfsUrl,
    args: &TouchArgs,
    Times { atime, mtime }: Times,
) -> anyhow::Result<()> {
    let place = session.place(url).await?;
    let follow = match args.no_dereference {
        true => Follow::No,
        false => Follow::Yes,
    };
    let attributes = SetAttributes {
        atime,
        mtime,
        ..SetAttributes::default()
    };
    let node = match place.find(follow).await? {
        Some(node) => node,
        None if args.no_create => return Ok(()),
        None if args.no_dereference => bail!(place.fault("find", Status::NoEntry)),
        None => {
            let mode = Some(0o666 & !umask_at(&place).await);
            let how = CreateHow::Guarded(SetAttributes {
                mode,
                ..SetAttributes::default()
            });
            let created = place.export.create(&place.path, how).await.of(&place)?;
            // What was just made has the time of the server's clock.
            let now = |time| matches!(time, SetTime::ServerTime | SetTime::DontChange);
            if now(atime) && now(mtime) {
                return Ok(());
            }
            let set = place.export.nfs();
            let set = set.set_attributes(created.handle(), attributes, None).await;
            return Ok(set.map_err(|fault| place.fault("set the times", fault))?);
        }
    };
    let set = place.set_attributes(&node, follow, attributes).await;
    set.map_err(|error| error.while_doing("set the times"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-23 05:40:12 in UTC.
    const NOW: u32 = 1_795_412_412;

    fn now() -> Zoned {
        let now = Timestamp::new(NOW.into(), 0).unwrap();
        now.to_zoned(TimeZone::posix("CET-1").unwrap())
    }

    #[test]
    fn dates_are_those_of_the_calendar_and_the_time_zone() {
        let check = |text: &str, seconds, nanoseconds| {
            let time = NfsTime {
                seconds,
                nanoseconds,
            };
            assert_eq!(parse_date(text, now()).unwrap(), time, "{text}");
        };
        check("@17.5", 17, 500_000_000);
        check("2026-11-23 06:40:12", NOW, 0);
        check("2026-11-23T05:40:12.000000001Z", NOW, 1);
        check("2 hours ago", NOW - 7200, 0);
        check("tomorrow", NOW + 86_400, 0);
        for bad in ["", "never", "2026-13-01", "1969-01-01", "2107-01-01", "@-1"] {
            let time = parse_date(bad, now());
            // An empty date is midnight, as with date(1).
            assert_eq!(time.is_ok(), bad.is_empty(), "{bad}");
        }
    }

    #[test]
    fn stamps_have_a_year_with_or_without_century_or_none() {
        let check = |text: &str, seconds| {
            let time = parse_stamp(text, &now()).unwrap();
            assert_eq!((time.seconds, time.nanoseconds), (seconds, 0), "{text}");
        };
        check("11230640.12", NOW);
        check("2611230640.12", NOW);
        check("202611230640.12", NOW);
        check("7001010100", 0);
        for bad in [
            "",
            "1",
            "1123064",
            "13230640",
            "11230640.1",
            "11230640.61",
            "+1230640",
            "68010100xx",
        ] {
            assert!(parse_stamp(bad, &now()).is_err(), "{bad}");
        }
        assert!(parse_stamp("210701010000", &now()).is_err());
    }
}
