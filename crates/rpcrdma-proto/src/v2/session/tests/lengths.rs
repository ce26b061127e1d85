//! No message of a session is longer than a first message may be.

use super::*;

/// Characteristics with a value of any length.
struct Note<const ID: u32>;

impl<const ID: u32> Characteristic for Note<ID> {
    type Value = usize;

    const ID: XcharId = XcharId(ID);
    const NAME: &'static str = "Note";
    const XDR: &'static str = "opaque<>";
    const FIXED: bool = false;

    fn default() -> usize {
        0
    }

    fn parse(r: &mut Reader<'_>) -> Result<usize, ValueError> {
        Ok(r.opaque(2048)?.len())
    }

    fn emit(bytes: &usize, w: &mut Writer) {
        w.opaque(&vec![7; *bytes]);
    }

    fn may_change(_: &usize, _: &usize) -> MayChange {
        MayChange::Unasked
    }
}

type One = Note<4_294_967_201>;
type Other = Note<4_294_967_202>;

fn one(bytes: usize) -> XcharVal {
    XcharVal::of::<One>(&bytes)
}

fn other(bytes: usize) -> XcharVal {
    XcharVal::of::<Other>(&bytes)
}

/// A server that says notes of these lengths.
fn server(designs: &[Design], one: usize, other: usize) -> Result<Session, ConfigError> {
    let mut config = Config::new(Role::Server);
    config.designs = designs.to_vec();
    config.registry.register::<One>().expect("its id is free");
    config.registry.register::<Other>().expect("its id is free");
    config.registered.set::<One>(&one);
    config.registered.set::<Other>(&other);
    Session::new(config)
}

/// The longest note beside another without bytes.
fn longest(designs: &[Design]) -> usize {
    let fits = |&bytes: &usize| server(designs, bytes, 0).is_ok();
    (0..1024).rev().find(fits).expect("an empty one fits")
}

/// Its answer to an INITXCH that offers each design.
fn stated(server: &mut Session) -> InitXch {
    let offer = DesignBits::offer(Design::ALL.into_iter().collect());
    let init = InitXch::default().with::<InvalidationDesigns>(&offer);
    say(server, 5, Direction::Call, Operation::InitXch(init));
    let (_, said) = operation(server);
    assert!(said.emitted_len() <= FIRST_MESSAGE, "{said:?}");
    match said {
        Operation::InitXch(init) => init,
        other => panic!("{other:?}"),
    }
}

#[test]
fn longest_statement_has_room_for_the_design_that_is_agreed_on() {
    for designs in [&[][..], &[Design::Fixed]] {
        let said = stated(&mut server(designs, longest(designs), 0).expect("it was tried"));
        let named = said.start.get::<InvalidationDesigns>();
        assert_eq!(named.is_some(), !designs.is_empty());
    }
}

#[test]
fn what_was_told_has_room_in_a_later_statement() {
    let most = longest(&[Design::Fixed]);
    let mut server = server(&[Design::Fixed], 0, 0).expect("it fits");
    stated(&mut server);
    let told = server.tell(one(most + 4));
    assert!(matches!(told, Err(TellError::TooLong(_))), "{told:?}");
    server.tell(one(most - 400)).expect("it fits");
    let told = server.tell(other(404));
    assert!(matches!(told, Err(TellError::TooLong(_))), "{told:?}");
    server.tell(other(400)).expect("both fit");
    while next(&mut server).is_some() {
        respond(&mut server, 7, &[]);
    }
    let said = stated(&mut server).start;
    let told = (said.get::<One>(), said.get::<Other>());
    assert_eq!(told, (Some(most - 400), Some(400)));
}

#[test]
fn value_of_which_the_peer_takes_no_note_has_its_former_room() {
    let most = longest(&[]);
    let mut server = server(&[], most - 400, 400).expect("it fits");
    stated(&mut server);
    server.tell(one(0)).expect("it is shorter");
    let (xid, _) = operation(&mut server);
    let told = server.tell(other(404));
    assert!(matches!(told, Err(TellError::TooLong(_))), "{told:?}");
    assert!(server.handle_error(xid, RdmaError::BadHeader));
    let said = stated(&mut server);
    assert_eq!(said.start.get::<One>(), Some(most - 400));
}
