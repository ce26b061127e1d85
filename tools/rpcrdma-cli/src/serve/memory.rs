//! Returns memory of closed connections to the system.

use rpcrdma::Server;
use std::time::Duration;

/// How often the connections are counted.
const LOOK: Duration = Duration::from_secs(5);

/// So many connections have to have gone before it is worth the time that it takes.
const WORTH_IT: usize = 512;

/// Returns memory of the server's connections to the system after many have gone, for ever.
pub(super) async fn return_what_is_free(server: &Server) {
    let mut most = 0;
    let mut tick = tokio::time::interval(LOOK);
    loop {
        tick.tick().await;
        if is_worth_it(&mut most, server.stats().connections) {
            syscalls::return_free_memory();
        }
    }
}

/// Whether many connections have gone since this was so last, given how many there are `now`. `most` is
/// how many there were in between.
fn is_worth_it(most: &mut usize, now: usize) -> bool {
    *most = now.max(*most);
    let worth_it = *most - now >= WORTH_IT;
    if worth_it {
        *most = now;
    }
    worth_it
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_whenever_many_connections_have_closed() {
        let mut most = 0;
        let mut look = |now| is_worth_it(&mut most, now);
        let seen = [10, 5000, 4900, 4488, 4300, 3976, 0, 0, 511, 0, 512, 0];
        let worth_it = seen.map(&mut look);
        let when: Vec<usize> = (0..seen.len()).filter(|&at| worth_it[at]).collect();
        assert_eq!(when, [3, 5, 6, 11]);
    }
}
