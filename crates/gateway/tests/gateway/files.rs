//! Files of a version 3 server through one gateway and through two.

use crate::stage::*;
use gateway::Upstream;
use nfs_client::Export;
use nfs_proto::SetAttributes;
use oncrpc::Transport;
use rpcrdma::Versions;

/// Bytes that differ from place to place.
fn bytes(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at / 251 + at * 7).to_le_bytes()[0])
        .collect()
}

/// Writes files of all sizes that travel differently, and reads them back.
async fn check_files<T: Transport + Send + Sync>(export: &Export<T>) {
    for len in [0, 1, 1023, 1024, 5000, 70_001, 1 << 20, (3 << 20) + 5] {
        let name = format!("file-{len}");
        let data = bytes(len);
        let written = export.write_all(&name, data.clone(), SetAttributes::default());
        written.await.expect("it is written");
        let read = export.read_all(&name, 8 << 20).await.expect("it is read");
        assert!(read == data, "{len} bytes");
    }
    let entries = export.entries("").await.expect("it is listed");
    assert_eq!(entries.len(), 8);
}

#[tokio::test]
async fn files_cross_from_rdma_to_tcp() {
    let server = serve_tcp(nfs());
    let gateway = from_rdma(Upstream::tcp(server.addr)).await;
    let client = rdma_client(gateway.local_addr()).await;
    check_files(&mount(client.clone()).await).await;
    let moved = client.counters();
    assert!(moved.write_bytes_received >= 4 << 20, "results in chunks");
    assert!(moved.read_chunks_offered > 0, "arguments in chunks");
    client.close().await;
    let stats = gateway.shutdown().await;
    assert_eq!((stats.upstream_connections, stats.relays), (1, 0));
    assert_eq!(stats.calls, stats.replies);
}

#[tokio::test]
async fn files_cross_from_tcp_to_rdma() {
    let server = serve_rdma(nfs(), Versions::One).await;
    let upstream = rdma_upstream(server.local_addr(), Versions::One);
    let gateway = from_tcp(upstream).await;
    check_files(&mount(tcp_client(gateway.local_addr()).await).await).await;
    let stats = gateway.shutdown().await;
    assert_eq!((stats.upstream_connections, stats.relays), (1, 0));
    let moved = server.shutdown().await.counters;
    assert!(moved.write_bytes_posted >= 4 << 20, "results in chunks");
    assert!(moved.read_bytes_pulled >= 4 << 20, "arguments in chunks");
}

#[tokio::test]
async fn files_cross_from_rdma_to_rdma() {
    let server = serve_rdma(nfs(), Versions::One).await;
    let gateway = from_rdma(rdma_upstream(server.local_addr(), Versions::One)).await;
    let client = rdma_client(gateway.local_addr()).await;
    check_files(&mount(client.clone()).await).await;
    client.close().await;
    gateway.shutdown().await;
}

#[tokio::test]
async fn files_cross_a_tunnel_of_either_version_between_tcp_ends() {
    for versions in [Versions::One, Versions::Two] {
        let server = serve_tcp(nfs());
        let far = from_rdma(Upstream::tcp(server.addr)).await;
        let near = from_tcp(rdma_upstream(far.local_addr(), versions)).await;
        check_files(&mount(tcp_client(near.local_addr()).await).await).await;
        near.shutdown().await;
        let stats = far.shutdown().await;
        assert_eq!(stats.calls, stats.replies);
    }
}
