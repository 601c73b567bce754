//! Monitors that answer well, badly, or not at all.

use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use serde_json::json;

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

/// A directory with a server that answers each request with the next of these.
fn answering(answers: &[&str]) -> (tempfile::TempDir, std::fs::File) {
    let answers: Vec<String> = answers.iter().map(|answer| (*answer).to_owned()).collect();
    let directory = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(directory.path().join(API_NAME)).unwrap();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        for answer in answers {
            let mut piece = [0; 4096];
            if socket.read(&mut piece).unwrap() == 0 {
                return;
            }
            // It may have heard enough.
            let _ = socket.write_all(answer.as_bytes());
        }
    });
    let run = std::fs::File::open(directory.path()).unwrap();
    (directory, run)
}

fn ask(answers: &[&str], requests: usize) -> Result<(), MonitorError> {
    let (_directory, run) = answering(answers);
    let (lifeline, _theirs) = UnixStream::pair().unwrap();
    let mut api = Api::open(run.as_fd(), std::process::id(), &lifeline, PATIENCE)?;
    let request = Request::put("/vm", json!({ "state": "Paused" }));
    api.ask(&vec![request; requests], PATIENCE)
}

#[test]
fn requests_are_answered_one_after_the_other() {
    let none = "HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n";
    let some = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    ask(&[none, some, none], 3).unwrap();
}

#[test]
fn a_refusal_is_repeated_without_what_a_terminal_would_obey() {
    let answer =
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 30\r\n\r\n{\"fault_message\":\"no\\u001bpe\"}";
    let error = ask(&[answer], 1).unwrap_err();
    assert_eq!(error.to_string(), "the VMM refused PUT /vm: 400 nope");
    let plain = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 3\r\n\r\nbad";
    assert!(ask(&[plain], 1).unwrap_err().to_string().ends_with("500 bad"));
    let list = "HTTP/1.1 500 Error\r\nContent-Length: 9\r\n\r\n[\"a\",\"b\"]";
    assert!(ask(&[list], 1).unwrap_err().to_string().ends_with("500 a: b"));
}

#[test]
fn what_is_no_plain_answer_is_not_guessed_at() {
    for head in [
        "HTTP/2 200 OK\r\n\r\n",
        "hello\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 -20 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    ] {
        let answer = ask(&[head], 1);
        assert!(matches!(answer, Err(MonitorError::Confused)), "{head:?}: {answer:?}");
    }
}

#[test]
fn silence_half_an_answer_and_an_endless_head_end_in_an_error() {
    let (_directory, run) = answering(&[]);
    let (lifeline, theirs) = UnixStream::pair().unwrap();
    let mut api = Api::open(run.as_fd(), std::process::id(), &lifeline, PATIENCE).unwrap();
    let request = Request::put("/vm", json!({}));
    let answer = api.ask(std::slice::from_ref(&request), PATIENCE);
    assert!(matches!(answer, Err(MonitorError::Gone(_))), "{answer:?}");
    drop(theirs);
    let half = ask(&["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"], 1);
    assert!(matches!(half, Err(MonitorError::Gone(_))), "{half:?}");
    let endless = "x".repeat(MAX_HEAD + 8192);
    let answer = ask(&[endless.as_str()], 1);
    assert!(matches!(answer, Err(MonitorError::Confused)), "{answer:?}");
}

#[test]
fn an_answer_that_never_comes_is_not_waited_for_longer_than_agreed() {
    let directory = tempfile::tempdir().unwrap();
    let _listener = UnixListener::bind(directory.path().join(API_NAME)).unwrap();
    let run = std::fs::File::open(directory.path()).unwrap();
    let (lifeline, _theirs) = UnixStream::pair().unwrap();
    let mut api = Api::open(run.as_fd(), std::process::id(), &lifeline, PATIENCE).unwrap();
    let request = Request::put("/vm", json!({}));
    let answer = api.ask(&[request], Duration::from_millis(20));
    assert!(matches!(answer, Err(MonitorError::TimedOut)), "{answer:?}");
}

#[test]
fn a_link_to_somebody_elses_socket_is_not_followed() {
    let (other, _run) = answering(&[]);
    let directory = tempfile::tempdir().unwrap();
    symlink(other.path().join(API_NAME), directory.path().join(API_NAME)).unwrap();
    let run = std::fs::File::open(directory.path()).unwrap();
    let (lifeline, _theirs) = UnixStream::pair().unwrap();
    let opened = Api::open(run.as_fd(), std::process::id(), &lifeline, PATIENCE);
    assert!(matches!(opened, Err(MonitorError::Gone(_))), "{opened:?}");
}

#[test]
fn a_socket_of_another_process_is_not_the_monitors() {
    let (_directory, run) = answering(&[]);
    let (lifeline, _theirs) = UnixStream::pair().unwrap();
    let opened = Api::open(run.as_fd(), std::process::id() + 1, &lifeline, PATIENCE);
    assert!(matches!(opened, Err(MonitorError::Confused)), "{opened:?}");
}

#[test]
fn a_monitor_that_has_ended_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let run = std::fs::File::open(directory.path()).unwrap();
    let (lifeline, theirs) = UnixStream::pair().unwrap();
    assert!(!has_ended(&lifeline));
    drop(theirs);
    assert!(has_ended(&lifeline));
    let opened = Api::open(run.as_fd(), 1, &lifeline, Duration::from_secs(600));
    assert!(matches!(opened, Err(MonitorError::Gone(_))), "{opened:?}");
}
