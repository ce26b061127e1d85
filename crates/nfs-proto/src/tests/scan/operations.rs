//! Arguments and results of each operation, by hand from the XDR of RFC 7531, RFC 5662, RFC 7863
//! and RFC 8276.

use super::xdr::{CALL, REPLY, Xdr, call, read_data, reply, write, xdr};
use super::{place, scan, scan_reply};

/// Checks that a scan steps over these arguments: it finds the item behind them.
#[track_caller]
fn stepped_over(operation: u8, arguments: Xdr) {
    let first = xdr().word(operation.into()).then(&arguments);
    let bytes = call(minor_version(operation), &[first.clone(), write(b"data")]);
    let found = scan(&bytes, 7).unwrap();
    let offset = CALL + first.0.len() + 36;
    assert_eq!(
        found.arguments.last(),
        Some(&place(offset, 4)),
        "{operation}"
    );
    assert_eq!(found.operations[..], [operation, 38]);
}

/// The version that has an operation.
fn minor_version(operation: u8) -> u32 {
    match operation {
        0..40 => 0,
        40..59 => 1,
        _ => 2,
    }
}

/// Checks that a scan steps over this result, and that the bound of its call is large enough.
#[track_caller]
fn result_stepped_over(operation: u8, result: Xdr) {
    let request = scan(&call(0, &[]), 64).unwrap();
    let first = xdr().word(operation.into()).then(&result);
    let bytes = reply(&[first.clone(), read_data(b"data")]);
    let found = scan_reply(&request, &bytes, 7);
    let offset = REPLY + first.0.len() + 16;
    assert_eq!(found.results.last(), Some(&place(offset, 4)), "{operation}");
    assert_eq!(found.operations[..], [operation, 25]);
}

fn ok() -> Xdr {
    xdr().word(0)
}

/// `netloc4` of each kind.
fn netloc(kind: u32) -> Xdr {
    match kind {
        3 => xdr().word(3).opaque(b"tcp").opaque(b"10.0.0.1.8.1"),
        _ => xdr().word(kind).opaque(b"server.example"),
    }
}

#[test]
fn arguments_of_version_4_0() {
    stepped_over(3, xdr().word(0x1f));
    stepped_over(4, xdr().word(1).stateid());
    stepped_over(5, xdr().long(0).word(4096));
    for object in [
        xdr().word(1),
        xdr().word(2),
        xdr().word(3).words(&[8, 1]),
        xdr().word(4).words(&[5, 1]),
        xdr().word(5).opaque(b"target"),
        xdr().word(6),
        xdr().word(7),
        xdr().word(99),
    ] {
        stepped_over(6, object.opaque(b"name").fattr());
    }
    stepped_over(7, xdr().long(1));
    stepped_over(8, xdr().stateid());
    stepped_over(9, xdr().bitmap(&[1, 2, 3]));
    stepped_over(10, xdr());
    stepped_over(11, xdr().opaque(b"newname"));
    let lock = xdr().words(&[1, 0]).long(0).long(10);
    let open_owner = xdr()
        .words(&[1, 7])
        .stateid()
        .word(8)
        .long(1)
        .opaque(b"owner");
    stepped_over(12, lock.clone().then(&open_owner));
    stepped_over(12, lock.word(0).stateid().word(8));
    stepped_over(13, xdr().word(1).long(0).long(10).long(1).opaque(b"owner"));
    stepped_over(14, xdr().words(&[1, 7]).stateid().long(0).long(10));
    stepped_over(15, xdr().opaque(b"name"));
    stepped_over(16, xdr());
    stepped_over(17, xdr().fattr());
    stepped_over(19, xdr().word(1));
    stepped_over(20, xdr().stateid().word(1));
    stepped_over(21, xdr().stateid().words(&[1, 1, 0]));
    stepped_over(22, xdr().opaque(&[1; 128]));
    stepped_over(23, xdr());
    stepped_over(24, xdr());
    stepped_over(25, xdr().stateid().long(0).word(4096));
    stepped_over(
        26,
        xdr().long(0).fixed(8).words(&[512, 4096]).bitmap(&[1, 2]),
    );
    stepped_over(27, xdr());
    stepped_over(28, xdr().opaque(b"name"));
    stepped_over(29, xdr().opaque(b"old").opaque(b"newname"));
    stepped_over(30, xdr().long(1));
    stepped_over(31, xdr());
    stepped_over(32, xdr());
    stepped_over(33, xdr().opaque(b"name"));
    stepped_over(34, xdr().stateid().fattr());
    let callback = xdr()
        .word(0x4000_0000)
        .opaque(b"tcp")
        .opaque(b"10.0.0.1.8.1");
    stepped_over(35, xdr().fixed(8).opaque(b"client").then(&callback).word(1));
    stepped_over(36, xdr().long(1).fixed(8));
    stepped_over(37, xdr().fattr());
    stepped_over(38, xdr().stateid().long(0).word(2).opaque(b"first"));
    stepped_over(39, xdr().long(1).opaque(b"owner"));
}

#[test]
fn arguments_of_open() {
    let open = |how: Xdr, claim: Xdr| {
        let owner = xdr().words(&[1, 3, 0]).long(1).opaque(b"owner");
        stepped_over(18, owner.then(&how).then(&claim));
    };
    let (nocreate, file) = (xdr().word(0), xdr().word(0).opaque(b"file"));
    open(nocreate.clone(), file.clone());
    open(xdr().words(&[1, 0]).fattr(), file.clone());
    open(xdr().words(&[1, 1]).fattr(), file.clone());
    open(xdr().words(&[1, 2]).fixed(8), file.clone());
    open(xdr().words(&[1, 3]).fixed(8).fattr(), file);
    open(nocreate.clone(), xdr().words(&[1, 2]));
    open(nocreate.clone(), xdr().word(2).stateid().opaque(b"file"));
    open(nocreate.clone(), xdr().word(3).opaque(b"file"));
    open(nocreate.clone(), xdr().word(4));
    open(nocreate.clone(), xdr().word(5).stateid());
    open(nocreate, xdr().word(6));
}

#[test]
fn arguments_of_version_4_1() {
    let sys = xdr()
        .words(&[1, 7])
        .opaque(b"host")
        .words(&[0, 0, 2, 10, 20]);
    let gss = xdr().words(&[6, 1]).opaque(b"server").opaque(b"client");
    let security = xdr().words(&[3, 0]).then(&sys).then(&gss);
    stepped_over(40, xdr().word(0x4000_0000).then(&security));
    stepped_over(41, xdr().fixed(16).words(&[3, 0]));
    let owner = xdr().fixed(8).opaque(b"owner").word(0x101);
    let implementation = xdr()
        .word(1)
        .opaque(b"kernel.org")
        .opaque(b"Linux")
        .long(0)
        .word(0);
    let ops = xdr().bitmap(&[1]).bitmap(&[1, 2]);
    let algorithms = xdr().word(2).opaque(b"sha1").opaque(b"sha256");
    for protect in [
        xdr().word(0),
        xdr().word(1).then(&ops),
        xdr()
            .word(2)
            .then(&ops)
            .then(&algorithms)
            .then(&algorithms)
            .words(&[4, 5]),
    ] {
        stepped_over(42, owner.clone().then(&protect).word(0));
        stepped_over(42, owner.clone().then(&protect).then(&implementation));
    }
    let channel = |ird: &[u32]| xdr().words(&[0, 1, 2, 3, 4, 5]).bitmap(ird);
    for ird in [&[][..], &[16]] {
        let session = xdr()
            .long(1)
            .words(&[1, 3])
            .then(&channel(ird))
            .then(&channel(ird));
        stepped_over(43, session.word(0x4000_0000).then(&security));
    }
    stepped_over(44, xdr().fixed(16));
    stepped_over(45, xdr().stateid());
    let delay = xdr().long(0).word(0).long(1).word(1);
    let directory = xdr().word(0).bitmap(&[1]).then(&delay);
    stepped_over(46, directory.bitmap(&[1, 2]).bitmap(&[1]));
    stepped_over(47, xdr().fixed(16).words(&[1, 4096]).bitmap(&[6]));
    stepped_over(48, xdr().words(&[1, 16]).long(0).fixed(8));
    let commit = xdr().long(0).long(10).word(0).stateid();
    let update = xdr().word(3).opaque(b"update");
    let changed = xdr().word(1).long(10).word(1).long(0).word(0);
    stepped_over(49, commit.clone().words(&[0, 0]).then(&update));
    stepped_over(49, commit.then(&changed).then(&update));
    let get = xdr().words(&[0, 1, 2]).long(0).long(10).long(4).stateid();
    stepped_over(50, get.word(4096));
    let file = xdr()
        .words(&[0, 1, 2, 1])
        .long(0)
        .long(10)
        .stateid()
        .opaque(b"body");
    stepped_over(51, file);
    stepped_over(51, xdr().words(&[0, 1, 2, 2]));
    stepped_over(51, xdr().words(&[0, 1, 2, 3]));
    stepped_over(52, xdr().word(0));
    stepped_over(53, xdr().fixed(16).words(&[1, 0, 0, 0]));
    stepped_over(54, xdr().opaque(b"ssv").opaque(b"digest"));
    stepped_over(55, xdr().word(2).stateid().stateid());
    for claim in [xdr().words(&[1, 2]), xdr().word(4), xdr().word(6)] {
        stepped_over(56, xdr().word(0x100).then(&claim));
    }
    stepped_over(57, xdr().long(1));
    stepped_over(58, xdr().word(0));
}

#[test]
fn arguments_of_version_4_2() {
    stepped_over(59, xdr().stateid().long(0).long(10));
    let copy = xdr()
        .stateid()
        .stateid()
        .long(0)
        .long(0)
        .long(10)
        .words(&[1, 0]);
    stepped_over(60, copy.clone().word(0));
    let servers = xdr()
        .word(3)
        .then(&netloc(1))
        .then(&netloc(2))
        .then(&netloc(3));
    stepped_over(60, copy.then(&servers));
    for kind in 1..=3 {
        stepped_over(61, xdr().stateid().then(&netloc(kind)));
    }
    stepped_over(62, xdr().stateid().long(0).long(10));
    stepped_over(63, xdr().stateid().long(0).long(10).bitmap(&[0x10]));
    let error = xdr().fixed(16).words(&[5, 25]);
    let layout = xdr().long(0).long(10).stateid();
    stepped_over(64, layout.clone().word(2).then(&error).then(&error));
    let io = xdr().long(1).long(2);
    let stats = layout.then(&io).then(&io).fixed(16);
    stepped_over(65, stats.word(4).opaque(b"update"));
    stepped_over(66, xdr().stateid());
    stepped_over(67, xdr().stateid());
    stepped_over(68, xdr().stateid().long(0).word(4096));
    stepped_over(69, xdr().stateid().long(0).word(1));
    let block = xdr()
        .long(0)
        .long(4096)
        .long(8)
        .long(0)
        .word(0)
        .long(8)
        .opaque(b"pattern");
    stepped_over(70, xdr().stateid().word(2).then(&block));
    stepped_over(71, xdr().stateid().stateid().long(0).long(0).long(10));
    stepped_over(72, xdr().opaque(b"user.name"));
    stepped_over(73, xdr().word(0).opaque(b"user.name").opaque(b"value"));
    stepped_over(74, xdr().long(0).word(4096));
    stepped_over(75, xdr().opaque(b"user.name"));
}

#[test]
fn results_of_version_4_0() {
    let info = || xdr().word(1).long(1).long(2);
    result_stepped_over(3, ok().words(&[0x3f, 0x1f]));
    result_stepped_over(4, ok().stateid());
    result_stepped_over(5, ok().fixed(8));
    result_stepped_over(6, ok().then(&info()).bitmap(&[0, 2]));
    result_stepped_over(9, ok().fattr());
    result_stepped_over(10, ok().opaque(&[1; 128]));
    result_stepped_over(11, ok().then(&info()));
    let denied = xdr()
        .word(10_010)
        .long(0)
        .long(10)
        .word(1)
        .long(1)
        .opaque(b"owner");
    result_stepped_over(12, ok().stateid());
    result_stepped_over(12, denied.clone());
    result_stepped_over(13, ok());
    result_stepped_over(13, denied);
    result_stepped_over(14, ok().stateid());
    result_stepped_over(20, ok().stateid());
    result_stepped_over(21, ok().stateid());
    result_stepped_over(25, ok().word(1).opaque(b"first"));
    let entry = |name| xdr().word(1).long(7).opaque(name).fattr();
    let entries = entry(b"a").then(&entry(b"longer")).word(0);
    result_stepped_over(26, ok().fixed(8).then(&entries).word(1));
    result_stepped_over(26, ok().fixed(8).words(&[0, 1]));
    result_stepped_over(27, ok().opaque(b"target"));
    result_stepped_over(28, ok().then(&info()));
    result_stepped_over(29, ok().then(&info()).then(&info()));
    let gss = xdr().word(6).opaque(b"oid").words(&[0, 1]);
    result_stepped_over(33, ok().words(&[3, 1, 0]).then(&gss));
    result_stepped_over(34, ok().bitmap(&[0, 2]));
    result_stepped_over(34, xdr().word(13).bitmap(&[]));
    result_stepped_over(35, ok().long(1).fixed(8));
    result_stepped_over(
        35,
        xdr().word(10_017).opaque(b"tcp").opaque(b"10.0.0.1.8.1"),
    );
    result_stepped_over(38, ok().words(&[5, 2]).fixed(8));
    for operation in [7, 8, 15, 16, 17, 19, 22, 23, 24, 30, 31, 32, 36, 37, 39] {
        result_stepped_over(operation, ok());
    }
    // Any other error is only a status.
    for operation in [3, 9, 12, 18, 25, 26, 27] {
        result_stepped_over(operation, xdr().word(13));
    }
}

/// `open_delegation4` of each kind.
fn delegations() -> Vec<Xdr> {
    let ace = xdr().words(&[0, 0, 1]).opaque(b"EVERYONE@");
    let read = |kind| xdr().word(kind).stateid().word(0).then(&ace);
    let write = |kind, limit: Xdr| xdr().word(kind).stateid().word(0).then(&limit).then(&ace);
    vec![
        xdr().word(0),
        read(1),
        write(2, xdr().word(1).long(4096)),
        write(2, xdr().word(2).words(&[8, 512])),
        // With attributes of time, too.
        read(4),
        write(5, xdr().word(1).long(4096)),
        xdr().words(&[3, 0]),
        xdr().words(&[3, 1, 1]),
        xdr().words(&[3, 2, 0]),
        xdr().words(&[3, 3]),
    ]
}

#[test]
fn results_of_open_and_delegations() {
    for delegation in delegations() {
        let open = ok()
            .stateid()
            .word(1)
            .long(1)
            .long(2)
            .word(4)
            .bitmap(&[0, 2]);
        result_stepped_over(18, open.then(&delegation));
        result_stepped_over(56, ok().then(&delegation));
    }
}

#[test]
fn results_of_version_4_1() {
    result_stepped_over(41, ok().fixed(16).words(&[3, 0]));
    let ops = xdr().bitmap(&[1]).bitmap(&[1, 2]);
    let server = xdr().long(1).opaque(b"major").opaque(b"scope");
    let implementation = xdr()
        .word(1)
        .opaque(b"kernel.org")
        .opaque(b"Linux")
        .long(0)
        .word(0);
    let handles = xdr()
        .words(&[1, 2, 3, 4, 2])
        .opaque(b"handle")
        .opaque(b"other");
    for protect in [
        xdr().word(0),
        xdr().word(1).then(&ops),
        xdr().word(2).then(&ops).then(&handles),
    ] {
        let exchange = ok().long(1).words(&[1, 2]).then(&protect).then(&server);
        result_stepped_over(42, exchange.clone().word(0));
        result_stepped_over(42, exchange.then(&implementation));
    }
    let channel = |ird: &[u32]| xdr().words(&[0, 1, 2, 3, 4, 5]).bitmap(ird);
    let session = ok().fixed(16).words(&[1, 3]);
    result_stepped_over(43, session.then(&channel(&[])).then(&channel(&[8])));
    let delegation = ok().word(0).fixed(8).stateid();
    result_stepped_over(46, delegation.bitmap(&[1]).bitmap(&[1, 2]).bitmap(&[]));
    result_stepped_over(46, ok().words(&[1, 1]));
    result_stepped_over(47, ok().word(1).opaque(b"address").bitmap(&[1]));
    result_stepped_over(47, xdr().words(&[10_005, 8192]));
    result_stepped_over(48, ok().long(0).fixed(8).word(2).fixed(32).word(1));
    result_stepped_over(49, ok().word(1).long(10));
    result_stepped_over(49, ok().word(0));
    let layout = xdr().long(0).long(10).words(&[2, 1]).opaque(b"layout");
    let layouts = ok().word(1).stateid().word(2).then(&layout).then(&layout);
    result_stepped_over(50, layouts);
    result_stepped_over(50, xdr().words(&[10_058, 1]));
    result_stepped_over(51, ok().word(1).stateid());
    result_stepped_over(51, ok().word(0));
    result_stepped_over(52, ok().words(&[1, 1]));
    result_stepped_over(53, ok().fixed(16).words(&[1, 0, 0, 0, 0]));
    result_stepped_over(54, ok().opaque(b"digest"));
    result_stepped_over(55, ok().words(&[2, 0, 10_025]));
    for operation in [40, 44, 45, 57, 58] {
        result_stepped_over(operation, ok());
    }
}

#[test]
fn results_of_version_4_2() {
    let response = |callback: Xdr| callback.long(10).word(2).fixed(8);
    let (done, later) = (xdr().word(0), xdr().word(1).stateid());
    result_stepped_over(60, ok().then(&response(done.clone())).words(&[1, 1]));
    result_stepped_over(60, ok().then(&response(later.clone())).words(&[1, 0]));
    result_stepped_over(60, xdr().words(&[10_094, 1, 1]));
    let servers = xdr().word(2).then(&netloc(1)).then(&netloc(3));
    result_stepped_over(61, ok().long(0).word(0).stateid().then(&servers));
    result_stepped_over(63, ok().bitmap(&[0x10]));
    result_stepped_over(67, ok().long(10).word(0));
    result_stepped_over(67, ok().long(10).words(&[1, 0]));
    let data = xdr().word(0).long(0).opaque(b"data!");
    let hole = xdr().word(1).long(4096).long(4096);
    result_stepped_over(68, ok().words(&[1, 2]).then(&hole).then(&data));
    result_stepped_over(69, ok().word(0).long(4096));
    result_stepped_over(70, ok().then(&response(later)));
    result_stepped_over(72, ok().opaque(b"value"));
    result_stepped_over(73, ok().word(1).long(1).long(2));
    result_stepped_over(
        74,
        ok().long(2).word(2).opaque(b"user.a").opaque(b"b").word(1),
    );
    result_stepped_over(75, ok().word(1).long(1).long(2));
    for operation in [59, 62, 64, 65, 66, 71] {
        result_stepped_over(operation, ok());
    }
}
