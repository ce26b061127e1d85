//! Private data of connection setup (RFC 8797).

use super::base::padded_null;
use super::nfs::read_with_reply_chunk;
use crate::bed::{Bed, private_data, private_data_of};
use crate::case::Case;
use crate::header::Version;
use crate::link::Link;
use crate::verdict::Level::{Must, Robustness};
use crate::verdict::{Tested, ensure, skip};
use rpcrdma_proto::PrivateData;

pub(super) const CASES: &[Case] = &[
    Case::responder(
        "PD-01",
        Must,
        "RFC 8797 §4",
        "private data of version 1 has eight octets, and its reserved bits are zero",
        well_formed,
    ),
    Case::responder(
        "PD-02",
        Must,
        "RFC 8797 §5.1",
        "a Requester without private data is served",
        |bed| is_served(bed, &[&[]]),
    ),
    Case::responder(
        "PD-03",
        Must,
        "RFC 8797 §5.2",
        "private data of something else is taken for none",
        of_something_else,
    ),
    Case::responder(
        "PD-04",
        Must,
        "RFC 8797 §4",
        "reserved bits that are set are ignored",
        reserved_bits,
    ),
    Case::responder(
        "PD-05",
        Robustness,
        "RFC 8797 §4, §5.2",
        "private data behind octets of something else, at any offset, is found or taken for none",
        shifted,
    ),
    Case::responder(
        "PD-06",
        Must,
        "RFC 8797 §5.1, §5.2",
        "private data that is cut off or of another version is taken for none",
        cut_off_or_of_another_version,
    ),
    Case::responder(
        "PD-07",
        Must,
        "RFC 8797 §4.2",
        "a message as long as the Receive Size that the Responder announces is taken in",
        announced_size,
    ),
    Case::responder(
        "PD-08",
        Must,
        "RFC 8797 §4.2, RFC 8166 §3.3.3",
        "no reply is longer than 1024 octets for a Requester without private data",
        |bed| no_reply_is_longer(bed, &[], 1024),
    ),
    Case::responder(
        "PD-09",
        Must,
        "RFC 8797 §4.2",
        "no reply is longer than the Receive Size that the Requester announces",
        |bed| no_reply_is_longer(bed, &private_data(true, 2048), 2048),
    ),
    Case::responder(
        "PD-10",
        Must,
        "RFC 8797 §5.1",
        "no reply is longer than 1024 octets where the version of the private data is unknown",
        |bed| no_reply_is_longer(bed, &[0xf6, 0xab, 0x0e, 0x18, 2, 1, 3, 3], 1024),
    ),
    Case::responder(
        "PD-11",
        Robustness,
        "RFC 8797 §4",
        "sizes at both ends of what can be said are taken in",
        extreme_sizes,
    ),
];

/// The eight octets that the Responder sends, if it sends them.
fn of_responder(link: &Link) -> Tested<&[u8]> {
    let identifier = [0xf6, 0xab, 0x0e, 0x18];
    let data = &link.private_data;
    match data.windows(4).position(|found| found == identifier) {
        Some(at) => Ok(&data[at..]),
        None => skip("the Responder sends no private data"),
    }
}

fn well_formed(bed: &Bed) -> Tested {
    let link = bed.connect()?;
    let data = of_responder(&link)?;
    bed.log.came("private data", data);
    let Some(&[_, _, _, _, version, flags, ..]) = data.first_chunk::<8>() else {
        return crate::verdict::fail("it has fewer than eight octets");
    };
    ensure(version == 1, || format!("its version is {version}"))?;
    ensure(flags & 0xfe == 0, || format!("its flags are {flags:#010b}"))
}

fn is_served(bed: &Bed, all: &[&[u8]]) -> Tested {
    for data in all {
        bed.log.sent("private data", data);
        let mut link = bed.connect_saying(data)?;
        bed.goes_on(&mut link, Version::One)?;
        link.close();
    }
    Ok(())
}

fn of_something_else(bed: &Bed) -> Tested {
    is_served(bed, &[b"x", b"hello, world", &[0xf6; 56], &[0; 8]])
}

fn reserved_bits(bed: &Bed) -> Tested {
    let mut data = private_data(false, 4096);
    data[5] = 0xfe;
    is_served(bed, &[&data])
}

/// RFC 8797 §5.2 describes a search at every offset without a keyword, and §4 has the message in the first octets.
fn shifted(bed: &Bed) -> Tested {
    for before in [1, 3, 4] {
        let data = [&[0x77; 8][..before], &private_data(true, 4096)].concat();
        is_served(bed, &[&data])?;
    }
    Ok(())
}

fn cut_off_or_of_another_version(bed: &Bed) -> Tested {
    let data = private_data(true, 4096);
    let mut other = data;
    other[4] = 9;
    is_served(bed, &[&data[..4], &data[..7], &other])
}

/// Longest message that is tried. What a provider sends at most is less than anybody could announce.
const LONGEST: usize = 256 << 10;

fn announced_size(bed: &Bed) -> Tested {
    // The smaller of what one end sends and the other takes is the threshold.
    let mut link = bed.connect_saying(&private_data_of(true, LONGEST, 4096))?;
    of_responder(&link)?;
    let Some(found) = PrivateData::find(&link.private_data) else {
        return skip("the Responder sends no private data that is valid");
    };
    let size = found.receive.bytes().min(LONGEST).min(link.max_message());
    let xid = bed.xid();
    let call = padded_null(bed, Version::One, xid, size);
    bed.ask(&mut link, &call)?.accepted(xid)?;
    Ok(())
}

fn no_reply_is_longer(bed: &Bed, said: &[u8], most: usize) -> Tested {
    bed.files()?;
    let mut link = bed.connect_saying(said)?;
    for count in [100, most - 200, most, most + 500] {
        let (_, length) = read_with_reply_chunk(bed, &mut link, Version::One, count)?;
        ensure(length <= most, || {
            format!("a message of {length} octets, where {most} are allowed")
        })?;
    }
    Ok(())
}

fn extreme_sizes(bed: &Bed) -> Tested {
    let mut data = private_data(true, 4096);
    for size in [0, 255] {
        (data[6], data[7]) = (size, size);
        is_served(bed, &[&data])?;
    }
    Ok(())
}
