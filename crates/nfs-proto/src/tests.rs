//! Every structure: random values, there and back, and through an outside implementation.

mod oracle;
mod sample;
mod scan;
mod vectors;

pub(crate) use sample::{Rng, Sample};

use crate::results::{self, Res};
use crate::{Attributes, SetAttributes, WccData, Wire, acl, args, mount};
use buffer::Buffer;
use oncrpc::xdr;
use oncrpc::xdr::{Error, Payload, Reader, Writer};
use proptest::prelude::*;

fn payload<'a>(value: &impl Wire<'a>) -> Payload {
    let mut w = Writer::default();
    value.write(&mut w);
    w.finish()
}

fn bytes<'a>(value: &impl Wire<'a>) -> Vec<u8> {
    let mut out = Buffer::default();
    payload(value).copy_stream_into(&mut out);
    out.to_vec()
}

/// Random values of a type are read as they were written, with items beside the stream and in it;
/// keep to the size they declare; and no shorter message is taken for them.
macro_rules! round_trip {
    ($rng:expr, $($ty:ty),* $(,)?) => {$({
        let value = <$ty as Sample>::sample($rng);
        let apart = payload(&value);
        prop_assert!(apart.head().len() <= <$ty as Wire>::MAX);
        let mut r = Reader::from(&apart);
        prop_assert_eq!(&<$ty as Wire>::parse(&mut r).unwrap(), &value);
        prop_assert!(r.finish().is_ok());

        let mut w = Writer::default();
        value.clone().hand_over(&mut w);
        let handed_over = w.finish();
        prop_assert_eq!(handed_over.head(), apart.head());
        prop_assert_eq!(handed_over.items().len(), apart.items().len());

        let whole = bytes(&value);
        prop_assert_eq!(handed_over.stream_len(), whole.len());
        let mut r = Reader::new(&whole);
        prop_assert_eq!(&<$ty as Wire>::parse(&mut r).unwrap(), &value);
        prop_assert!(r.finish().is_ok());

        let cut = $rng.below(whole.len().max(1)) & !3;
        if cut < whole.len() {
            let short = <$ty as Wire>::parse(&mut Reader::new(&whole[..cut]));
            prop_assert!(short.is_err());
        }
    })*};
}

proptest! {
    #[test]
    fn arguments_are_read_as_they_were_written(seed: u64) {
        let rng = &mut Rng::new(seed);
        round_trip!(
            rng,
            args::GetAttr, args::SetAttr, args::Lookup<'_>, args::CheckAccess, args::ReadLink,
            args::Read, args::Write<'_>, args::Create<'_>, args::MkDir<'_>, args::Symlink<'_>,
            args::MkNod<'_>, args::Remove<'_>, args::RmDir<'_>, args::Rename<'_>, args::Link<'_>,
            args::ReadDir, args::ReadDirPlus, args::FsStat, args::FsInfo, args::PathConf,
            args::Commit, mount::Mount<'_>, mount::Unmount<'_>, SetAttributes, acl::GetAcl,
            acl::SetAcl,
        );
    }

    #[test]
    fn results_are_read_as_they_were_written(seed: u64) {
        let rng = &mut Rng::new(seed);
        type PostOp = Option<Attributes>;
        round_trip!(
            rng,
            Res<results::GetAttr, ()>, Res<results::SetAttr, WccData>,
            Res<results::Lookup, PostOp>, Res<results::CheckAccess, PostOp>,
            Res<results::ReadLink<'_>, PostOp>, Res<results::Read<'_>, PostOp>,
            Res<results::Write, WccData>, Res<results::Create, WccData>,
            Res<results::Remove, WccData>, Res<results::Rename, results::Rename>,
            Res<results::Link, results::Link>, Res<results::ReadDir<'_>, PostOp>,
            Res<results::ReadDirPlus<'_>, PostOp>, Res<results::FsStat, PostOp>,
            Res<results::FsInfo, PostOp>, Res<results::PathConf, PostOp>,
            Res<results::Commit, WccData>, Result<mount::Mounted, mount::MountStatus>,
            mount::MountList<'_>, mount::ExportList<'_>, Res<acl::Lists, PostOp>,
            Res<acl::Done, PostOp>,
        );
    }

    #[test]
    fn any_bytes_are_a_value_or_an_error(words in proptest::collection::vec(
        prop_oneof![0u32..8, any::<u32>()], 0..200,
    )) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let _ = Res::<results::ReadDirPlus<'_>, Option<Attributes>>::parse(&mut Reader::new(&bytes));
        let _ = Res::<results::Read<'_>, Option<Attributes>>::parse(&mut Reader::new(&bytes));
        let _ = args::MkNod::parse(&mut Reader::new(&bytes));
        let _ = args::Write::parse(&mut Reader::new(&bytes));
        let _ = mount::ExportList::parse(&mut Reader::new(&bytes));
        let _ = acl::SetAcl::parse(&mut Reader::new(&bytes));
    }
}

#[test]
fn only_data_and_link_text_are_written_by_reference() {
    let rng = &mut Rng::new(1);
    let items = |payload: Payload| payload.items().len();
    let write = args::Write {
        data: (&b"data"[..]).into(),
        ..Sample::sample(rng)
    };
    assert_eq!(items(payload(&write)), 1);
    let symlink = args::Symlink {
        target: (&b"text"[..]).into(),
        ..Sample::sample(rng)
    };
    assert_eq!(items(payload(&symlink)), 1);
    assert_eq!(items(payload(&args::Rename::sample(rng))), 0);
    assert_eq!(items(payload(&results::ReadDirPlus::sample(rng))), 0);
}

#[test]
fn name_that_came_by_reference_is_refused() {
    // RFC 8267 §4 lists what may: names do not.
    let mut w = Writer::default();
    crate::FileHandle::new(b"dir").unwrap().write(&mut w);
    w.item(xdr::Gather::from_elem(
        bytes::Bytes::from_static(b"name"),
        1,
    ));
    let payload = w.finish();
    let read = args::Lookup::parse(&mut Reader::from(&payload));
    assert_eq!(read.unwrap_err(), Error::Ineligible);
}
