//! The same bytes through an implementation that is not ours (`nfs3_types`).

use super::{Rng, Sample, bytes};
use crate::results::{self, Res};
use crate::{Attributes, WccData, Wire, args, mount};
use nfs3_types::mount as their_mount;
use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::{List, Pack, Unpack};
use oncrpc::xdr::Reader;
use proptest::prelude::*;

fn theirs<T: Unpack>(bytes: &[u8]) -> T {
    let (value, len) = T::unpack(&mut &bytes[..]).expect("they can read what we wrote");
    assert_eq!(len, bytes.len(), "and all of it");
    value
}

/// They read what we wrote, and we read what they wrote.
macro_rules! agree {
    ($rng:expr, $($ours:ty => $theirs:ty,)*) => {$({
        let value = <$ours as Sample>::sample($rng);
        let there = theirs::<$theirs>(&bytes(&value));
        let mut back = Vec::new();
        there.pack(&mut back).unwrap();
        let mut r = Reader::new(&back);
        prop_assert_eq!(&<$ours as Wire>::parse(&mut r).unwrap(), &value);
        prop_assert!(r.finish().is_ok());
    })*};
}

type PostOp = Option<Attributes>;

proptest! {
    #[test]
    fn arguments_are_those_of_another_implementation(seed: u64) {
        let rng = &mut Rng::new(seed);
        agree! { rng,
            args::GetAttr => GETATTR3args,
            args::SetAttr => SETATTR3args,
            args::Lookup<'_> => LOOKUP3args<'static>,
            args::CheckAccess => ACCESS3args,
            args::ReadLink => READLINK3args,
            args::Read => READ3args,
            args::Write<'_> => WRITE3args<'static>,
            args::Create<'_> => CREATE3args<'static>,
            args::MkDir<'_> => MKDIR3args<'static>,
            args::Symlink<'_> => SYMLINK3args<'static>,
            args::MkNod<'_> => MKNOD3args<'static>,
            args::Remove<'_> => REMOVE3args<'static>,
            args::RmDir<'_> => RMDIR3args<'static>,
            args::Rename<'_> => RENAME3args<'static, 'static>,
            args::Link<'_> => LINK3args<'static>,
            args::ReadDir => READDIR3args,
            args::ReadDirPlus => READDIRPLUS3args,
            args::FsStat => FSSTAT3args,
            args::FsInfo => FSINFO3args,
            args::PathConf => PATHCONF3args,
            args::Commit => COMMIT3args,
            mount::Mount<'_> => their_mount::dirpath<'static>,
        }
    }

    #[test]
    fn results_are_those_of_another_implementation(seed: u64) {
        let rng = &mut Rng::new(seed);
        agree! { rng,
            Res<results::GetAttr, ()> => GETATTR3res,
            Res<results::SetAttr, WccData> => SETATTR3res,
            Res<results::Lookup, PostOp> => LOOKUP3res,
            Res<results::CheckAccess, PostOp> => ACCESS3res,
            Res<results::ReadLink<'_>, PostOp> => READLINK3res<'static>,
            Res<results::Read<'_>, PostOp> => READ3res<'static>,
            Res<results::Write, WccData> => WRITE3res,
            Res<results::Create, WccData> => CREATE3res,
            Res<results::Create, WccData> => MKDIR3res,
            Res<results::Create, WccData> => SYMLINK3res,
            Res<results::Create, WccData> => MKNOD3res,
            Res<results::Remove, WccData> => REMOVE3res,
            Res<results::Remove, WccData> => RMDIR3res,
            Res<results::Rename, results::Rename> => RENAME3res,
            Res<results::Link, results::Link> => LINK3res,
            Res<results::ReadDir<'_>, PostOp> => READDIR3res<'static>,
            Res<results::ReadDirPlus<'_>, PostOp> => READDIRPLUS3res<'static>,
            Res<results::FsStat, PostOp> => FSSTAT3res,
            Res<results::FsInfo, PostOp> => FSINFO3res,
            Res<results::PathConf, PostOp> => PATHCONF3res,
            Res<results::Commit, WccData> => COMMIT3res,
            Result<mount::Mounted, mount::MountStatus> => their_mount::mountres3<'static>,
            mount::MountList<'_> => List<their_mount::mountbody<'static, 'static>>,
            mount::ExportList<'_> => List<their_mount::export_node<'static, 'static>>,
        }
    }

    /// Fields of one type that stand side by side would survive being mixed up.
    #[test]
    fn fields_mean_what_they_mean_elsewhere(seed: u64) {
        let rng = &mut Rng::new(seed);

        let ours = Attributes::sample(rng);
        let other: fattr3 = theirs(&bytes(&ours));
        prop_assert_eq!(
            (other.mode, other.nlink, other.uid, other.gid, other.size, other.used),
            (ours.mode, ours.links, ours.uid, ours.gid, ours.size, ours.used)
        );
        prop_assert_eq!(
            (other.rdev.specdata1, other.rdev.specdata2, other.fsid, other.fileid),
            (ours.device.major, ours.device.minor, ours.fsid, ours.file_id.0)
        );
        prop_assert_eq!(
            (other.atime.seconds, other.mtime.seconds, other.ctime.nseconds),
            (ours.atime.seconds, ours.mtime.seconds, ours.ctime.nanoseconds)
        );

        let ours = results::FsInfo::sample(rng);
        let other: FSINFO3resok = theirs(&bytes(&ours));
        prop_assert_eq!(
            (other.rtmax, other.rtpref, other.rtmult, other.wtmax, other.wtpref, other.wtmult),
            (
                ours.read_max, ours.read_preferred, ours.read_multiple,
                ours.write_max, ours.write_preferred, ours.write_multiple,
            )
        );
        prop_assert_eq!((other.dtpref, other.properties), (ours.dir_preferred, ours.properties.bits()));

        let ours = results::FsStat::sample(rng);
        let other: FSSTAT3resok = theirs(&bytes(&ours));
        prop_assert_eq!(
            (other.tbytes, other.fbytes, other.abytes, other.tfiles, other.ffiles, other.afiles),
            (
                ours.total_bytes, ours.free_bytes, ours.available_bytes,
                ours.total_files, ours.free_files, ours.available_files,
            )
        );

        let ours = results::PathConf::sample(rng);
        let other: PATHCONF3resok = theirs(&bytes(&ours));
        prop_assert_eq!(
            (
                other.linkmax, other.name_max, other.no_trunc, other.chown_restricted,
                other.case_insensitive, other.case_preserving,
            ),
            (
                ours.link_max, ours.name_max, ours.no_trunc, ours.chown_restricted,
                ours.case_insensitive, ours.case_preserving,
            )
        );

        let ours = args::ReadDirPlus::sample(rng);
        let other: READDIRPLUS3args = theirs(&bytes(&ours));
        prop_assert_eq!((other.dircount, other.maxcount), (ours.dir_count, ours.max_count));
    }
}
