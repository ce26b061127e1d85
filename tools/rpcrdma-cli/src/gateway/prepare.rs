//! What can be known of a pair before it starts.

use super::pairs::Pairs;
use super::plan::PairPlan;
use super::side::Scheme;
use crate::endpoint::NO_ADDRESS;
use crate::serve::listen;
use anyhow::{Context, anyhow};
use std::net::SocketAddr;

impl Pairs {
    /// Finds out what speaks against a pair. Returns the addresses of its server.
    ///
    /// # Errors
    ///
    /// Why the pair cannot be started.
    pub(super) async fn prepare(&self, plan: &PairPlan) -> anyhow::Result<Vec<SocketAddr>> {
        let upstream = resolve(plan).await?;
        if [plan.listen.scheme, plan.upstream.scheme].contains(&Scheme::Rdma) {
            self.args.transport.one_provider()?;
        }
        Ok(upstream)
    }

    /// Finds out whether a pair could listen, but for ports that something `has` which ends before.
    ///
    /// # Errors
    ///
    /// Why it could not.
    pub(super) fn try_out(
        &self,
        plan: &PairPlan,
        has: impl Fn(SocketAddr) -> bool,
    ) -> anyhow::Result<()> {
        let options = ["--listen", "--mount-port"];
        for (addr, option) in plan.listeners().zip(options) {
            // Ports of RDMA devices are others than those of TCP.
            let is_device = option == "--listen"
                && plan.listen.scheme == Scheme::Rdma
                && self.args.transport.wants_devices();
            if !is_device && !has(addr) {
                listen::try_out(addr).map_err(|error| listen::explain(error, addr, option))?;
            }
        }
        Ok(())
    }
}

/// The addresses of the server, in order.
async fn resolve(plan: &PairPlan) -> anyhow::Result<Vec<SocketAddr>> {
    let server = &plan.upstream.server;
    let addrs = server.addresses().await;
    let mut addrs = addrs.with_context(|| format!("upstream {server}"))?;
    addrs.dedup();
    match addrs.is_empty() {
        true => Err(anyhow!("upstream {server}: {NO_ADDRESS}")),
        false => Ok(addrs),
    }
}
