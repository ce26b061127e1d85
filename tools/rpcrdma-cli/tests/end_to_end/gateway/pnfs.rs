//! Servers of pNFS, whose clients would go past the gateway.

use super::Gateway;
use nfs_proto::scan::{USE_NON_PNFS, USE_PNFS_MDS};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Octets of words and names, as XDR has them.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A message in a record of its own (RFC 5531 §11).
fn record(message: &[u8]) -> Vec<u8> {
    let len = u32::try_from(message.len()).unwrap();
    [&(len | 1 << 31).to_be_bytes(), message].concat()
}

fn read_record(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut message = vec![0; (u32::from_be_bytes(len) & !(1 << 31)) as usize];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// EXCHANGE_ID in a COMPOUND of version 4.1 (RFC 8881 §18.35).
fn call() -> Vec<u8> {
    let compound = [7, 0, 2, 100_003, 4, 1, 0, 0, 0, 0, 0, 1, 1];
    let exchange_id = [42, 0, 7, 4, u32::from_be_bytes(*b"name"), 0, 0, 0];
    words(&[&compound[..], &exchange_id].concat())
}

/// The reply with these flags.
fn reply(xid: u32, flags: u32) -> Vec<u8> {
    let compound = [xid, 1, 0, 0, 0, 0, 0, 0, 1, 42, 0];
    let exchange_id = [0, 7, 1, flags, 0, 0, 0];
    let names =
        ["own.", "scop"].map(|name| [4, u32::from_be_bytes(name.as_bytes().try_into().unwrap())]);
    words(&[&compound[..], &exchange_id, &names.concat(), &[0]].concat())
}

/// A metadata server of pNFS over TCP, which gives each call this answer. It ends with the process.
fn metadata_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                while let Ok(call) = read_record(&mut stream) {
                    let xid = u32::from_be_bytes(call[..4].try_into().unwrap());
                    // The gateway may have closed it.
                    let _ = stream.write_all(&record(&reply(xid, USE_PNFS_MDS)));
                }
            });
        }
    });
    url
}

#[test]
fn option_and_key_hide_pnfs_from_clients() {
    let upstream = metadata_server();
    // Connections from TCP to TCP are refused: a tunnel of two.
    let tunnel = |args: &[&str]| {
        let far = Gateway::between("rdma://127.0.0.1:0", &upstream, args);
        let near = Gateway::between("tcp://127.0.0.1:0", &far.rdma_url(), &["--trust-local"]);
        (near, far)
    };
    let flags = |near: &Gateway| {
        let mut stream = TcpStream::connect(near.addr(0)).unwrap();
        stream.write_all(&record(&call())).unwrap();
        let answer = read_record(&mut stream).unwrap();
        [USE_NON_PNFS, USE_PNFS_MDS].map(|flags| answer == reply(7, flags))
    };
    let (near, _far) = tunnel(&[]);
    assert_eq!(flags(&near), [false, true]);
    let (near, _far) = tunnel(&["--hide-pnfs"]);
    assert_eq!(flags(&near), [true, false]);
    for (key, hides) in [
        ("hide_pnfs = true\n", true),
        ("hide_pnfs = false\n", false),
        ("", false),
    ] {
        let pair =
            format!("[[pair]]\nlisten = \"rdma://127.0.0.1:0\"\nupstream = \"{upstream}\"\n{key}");
        let far = Gateway::configured(&pair);
        let near = Gateway::between("tcp://127.0.0.1:0", &far.rdma_url(), &["--trust-local"]);
        assert_eq!(flags(&near), [hides, !hides], "{key}");
    }
}
