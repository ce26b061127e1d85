//! Counts and output of `ping`.

use crate::running::{PROGRAM, Running, Served, free_port, ok, run, text};
use crate::scripted::{Do, server};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

const VERSION_ONE: &str = "--rpcrdma-version=1";

/// Runs `ping --json`, which must end with this code: its document, and what it says otherwise.
#[track_caller]
fn ping(code: i32, args: &[&str]) -> (Value, String) {
    let output = run(&[&["ping", "--json", VERSION_ONE], args].concat());
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
    (serde_json::from_slice(&output.stdout).unwrap(), errors)
}

/// A ping that goes on.
fn start(args: &[&str]) -> Running {
    let mut command = Command::new(PROGRAM);
    command.args(["ping", VERSION_ONE]).args(args);
    Running::spawn(command.stdout(Stdio::piped()))
}

#[test]
fn call_without_a_reply_is_counted_and_the_next_one_is_sent() {
    let silent_once = |call| if call == 2 { Do::Ignore } else { Do::Answer };
    let addr = server(silent_once);
    let (found, _) = ping(1, &["-c3", "-i10ms", "-W5s", &addr]);
    assert_eq!((&found["sent"], &found["received"]), (&3.into(), &2.into()));
    assert_eq!(found["loss_percent"], 33.333);
    let error = found["error"].as_str().unwrap();
    assert!(error.starts_with("no reply within 5"), "{error}");
}

#[test]
fn calls_are_sent_while_an_earlier_one_waits_for_its_reply() {
    let addr = server(|call| if call == 2 { Do::Hold } else { Do::Answer });
    let (found, _) = ping(0, &["-c3", "-i1ms", "-W1h", &addr]);
    assert_eq!((&found["sent"], &found["received"]), (&3.into(), &3.into()));
    assert_eq!(found["error"], Value::Null);
}

#[test]
fn call_that_is_outstanding_at_an_interrupt_is_counted() {
    let (heard, hears) = channel();
    let addr = server(move |call| {
        heard.send(call).unwrap();
        if call == 1 { Do::Answer } else { Do::Ignore }
    });
    let ping = start(&["-A", "-W1h", &addr]);
    while hears.recv().unwrap() != 2 {}
    kill_process(Pid::from_child(&ping), Signal::INT).unwrap();
    let output = ping.output();
    let said = text(&output.stdout);
    assert!(
        said.contains("2 calls, 1 replies, 50% lost, time "),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(1), "{said}");
}

#[test]
fn interrupt_between_calls_ends_with_the_summary_and_success() {
    let served = Served::new(&[]);
    let mut ping = start(&["-i1h", &served.listening]);
    let mut out = BufReader::new(ping.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("seq=1 time=") {
        assert!(out.read_line(&mut said).unwrap() > 0, "{said}");
    }
    kill_process(Pid::from_child(&ping), Signal::INT).unwrap();
    out.read_to_string(&mut said).unwrap();
    assert!(
        said.contains("1 calls, 1 replies, 0% lost, time "),
        "{said}"
    );
    assert!(said.contains("rtt min/avg/max/mdev = "), "{said}");
    assert!(said.contains("rtt p50/p90/p99/max = "), "{said}");
    assert_eq!(ping.wait().unwrap().code(), Some(0));
}

#[test]
fn lost_connection_is_made_again_and_said_so() {
    let addr = || {
        server(|call| {
            if call == 1 {
                Do::AnswerAndEnd
            } else {
                Do::Answer
            }
        })
    };
    let (found, errors) = ping(0, &["-c3", "-A", &addr()]);
    assert_eq!(
        (&found["received"], &found["reconnects"]),
        (&3.into(), &1.into())
    );
    assert_eq!(errors, "");
    let output = run(&["ping", VERSION_ONE, "-c3", "-A", &addr()]);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(
        said.contains("0% lost, time ") && said.contains(", 1 reconnect\n"),
        "{said}"
    );
    assert!(errors.ends_with("was lost and made again\n"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn document_is_printed_without_a_connection_too() {
    let addr = format!("127.0.0.1:{}", free_port());
    let (found, errors) = ping(1, &["-c1", &addr]);
    assert_eq!(
        (&found["sent"], &found["server"]),
        (&0.into(), &addr.clone().into())
    );
    let says = format!("{addr}: no server there");
    assert!(
        found["error"].as_str().unwrap().starts_with(&says),
        "{found}"
    );
    assert!(errors.contains(&says), "{errors}");
}

#[test]
fn deadline_ends_a_ping_without_an_answer() {
    let addr = server(|_| Do::Ignore);
    let (found, _) = ping(1, &["-w3s", "-W1h", "-i1h", &addr]);
    assert_eq!((&found["sent"], &found["received"]), (&1.into(), &0.into()));
    assert_eq!(found["rtt_ms"], Value::Null);
}

#[test]
fn count_is_one_of_replies_where_there_is_a_deadline() {
    let addr = server(|call| if call == 2 { Do::Ignore } else { Do::Answer });
    let (found, _) = ping(1, &["-c3", "-w1h", "-W5s", "-A", &addr]);
    assert_eq!((&found["sent"], &found["received"]), (&4.into(), &3.into()));
}

#[test]
fn quiet_ping_prints_its_first_line_and_the_summary() {
    let served = Served::new(&[]);
    let said = text(&ok(&["ping", "-q", "-c2", "-i0", &served.listening]));
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("PING "), "{said}");
    assert_eq!(lines[1], "");
    assert!(lines[2].ends_with(" ping statistics ---"), "{said}");
    assert_eq!(lines.len(), 6, "{said}");
}

#[test]
fn verbose_ping_says_what_wireshark_decodes() {
    let served = Served::new(&[]);
    let two = text(&ok(&["ping", "-v", "-c1", &served.listening]));
    assert!(two.contains("inline threshold: 8192 bytes"), "{two}");
    assert!(two.contains("contrib/wireshark/rpcrdma-v2.lua"), "{two}");
    let one = text(&ok(&["ping", "-v", "-c1", VERSION_ONE, &served.listening]));
    assert!(one.contains("Wireshark decodes this version"), "{one}");
}
