//! Cases against our own peers, which pass, and against broken ones, which are caught.

mod broken_requester;
mod broken_responder;
mod faulty;
mod requester;
mod responder;
