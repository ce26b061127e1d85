//! Agreeing on a design for remote invalidation.

use super::*;

fn offering(of_client: &[Design], of_server: &[Design]) -> Pair {
    Pair::with(|config| {
        config.designs = match config.role {
            Role::Client => of_client.to_vec(),
            Role::Server => of_server.to_vec(),
        };
    })
}

#[test]
fn server_takes_the_first_of_its_own_that_the_client_offers() {
    let check = |of_client: &[Design], of_server: &[Design], expected| {
        let mut pair = offering(of_client, of_server);
        pair.drive();
        assert_eq!(
            pair.client.design(),
            expected,
            "{of_client:?} {of_server:?}"
        );
        assert_eq!(
            pair.server.design(),
            expected,
            "{of_client:?} {of_server:?}"
        );
    };
    let all = Design::ALL;
    check(
        &all,
        &[Design::PerCall, Design::Fixed],
        Some(Design::PerCall),
    );
    check(&[Design::Fixed], &all, Some(Design::Fixed));
    check(&[Design::Fixed], &[Design::PerCall], None);
    check(&all, &[], None);
    check(&[], &all, None);
    // Not agreed on like this.
    check(&[Design::PerVersion, Design::PerConnection], &all, None);
}

#[test]
fn design_holds_behind_the_answer_and_not_before() {
    let mut pair = offering(&[Design::PerCall], &[Design::PerCall]);
    let Pair { client, server, .. } = &mut pair;
    deliver(next(client).expect("the first message"), server);
    assert_eq!(server.design(), None);
    let answer = next(server).expect("an answer");
    assert_eq!(
        (server.design(), client.design()),
        (Some(Design::PerCall), None)
    );
    deliver(answer, client);
    assert_eq!(client.design(), Some(Design::PerCall));
}

#[test]
fn design_alone_governs_where_there_is_one() {
    let allowed = |design: &[Design], backward| {
        let mut pair = Pair::with(|config| {
            config.remote_invalidation = true;
            config.backward = backward;
            config.designs = design.to_vec();
        });
        pair.drive();
        [pair.client, pair.server].map(|end| end.peer_allows_invalidation())
    };
    assert_eq!(allowed(&[], BackwardSupport::General), [true, true]);
    // A server without chunks exposes nothing that could be invalidated.
    assert_eq!(allowed(&[], BackwardSupport::Inline), [false, true]);
    assert_eq!(
        allowed(&[Design::PerCall], BackwardSupport::General),
        [false, false]
    );
}

#[test]
fn offer_counts_only_in_a_first_message_and_if_it_never_changes() {
    let bits = DesignBits::offer([Design::PerCall].into_iter().collect());
    let offer = InitXch::default().with::<InvalidationDesigns>(&bits);
    let mut changing = offer.clone();
    changing.nochg = Default::default();
    let check = |init: InitXch, late: bool, expected| {
        let mut server = offering(&[], &[Design::PerCall]).server;
        if late {
            server.handle_heard();
        }
        say(&mut server, 1, Direction::Call, Operation::InitXch(init));
        let Operation::InitXch(answer) = operation(&mut server).1 else {
            panic!("an answer");
        };
        assert_eq!(server.design(), expected);
        assert_eq!(
            answer.start.get::<InvalidationDesigns>().is_some(),
            expected.is_some()
        );
    };
    check(offer.clone(), false, Some(Design::PerCall));
    check(offer, true, None);
    check(changing, false, None);
}

#[test]
fn answer_names_one_offered_design_or_none_or_it_is_not_clear_what_holds() {
    let check = |answer: &[Design], expected, clear: bool| {
        let mut client = offering(&[Design::PerCall, Design::Fixed], &[]).client;
        let (xid, _) = optional(&mut client);
        let bits = DesignBits::offer(answer.iter().copied().collect());
        let init = InitXch::default().with::<InvalidationDesigns>(&bits);
        say(&mut client, xid, Direction::Reply, Operation::InitXch(init));
        assert_eq!(
            (client.opening(), client.design()),
            (Opening::Done, expected)
        );
        assert_eq!(client.is_unclear(), !clear, "{answer:?}");
        assert_eq!(client.counters().no_design, u64::from(!clear));
    };
    check(&[Design::Fixed], Some(Design::Fixed), true);
    check(&[], None, true);
    check(&[Design::Fixed, Design::PerCall], None, false);
    check(&[Design::InterCall], None, false);
}

#[test]
fn design_is_not_asked_for_later() {
    let mut pair = offering(&[Design::PerCall], &[Design::PerCall]);
    pair.drive();
    let bits = XcharVal::of::<InvalidationDesigns>(&DesignBits::answer(Design::Fixed));
    let refused = pair.client.request_peer(vec![bits.clone()]);
    assert_eq!(refused, Err(RequestError::Unknown(InvalidationDesigns::ID)));
    request(&mut pair.server, std::slice::from_ref(&bits));
    assert!(response(&mut pair.server).rejected.contains(0));
    tell(&mut pair.server, bits, false);
    assert_eq!(pair.server.counters().ignored, 1);
    assert_eq!(pair.server.design(), Some(Design::PerCall));
}
