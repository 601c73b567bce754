//! The brain of an agent. It runs in a ring of its own, from which only the model can be reached, and
//! only through the gateway, which knows the key. It asks the model what to do next and its
//! supervisor to do it, by lines on its standard streams; it starts nothing and opens no file.

mod ask;

use std::io::{self, BufReader, Write};
use std::process::ExitCode;

use ringwall_agent_model::{
    Answer, FromBrain, Said, Start, TalkError, ToBrain, read_line, write_line,
};

#[derive(Debug, thiserror::Error)]
enum BrainError {
    #[error(transparent)]
    Talk(#[from] TalkError),
    #[error("the supervisor did not begin with a start, or answered something else")]
    Unexpected,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell if this fails.
            let _ = writeln!(io::stderr(), "ringwall-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), BrainError> {
    let mut input = BufReader::new(io::stdin().lock());
    let mut output = io::stdout().lock();
    let Some(ToBrain::Start(mut start)) = read_line(&mut input)? else {
        return Err(BrainError::Unexpected);
    };
    loop {
        let answer = match think(&start, &mut output)? {
            Some(answer) => answer,
            None => return Ok(()),
        };
        let waits = !answer.turn.calls.is_empty();
        start.history.push(Said::Assistant(answer.turn));
        if !waits {
            return Ok(());
        }
        match read_line(&mut input)? {
            Some(ToBrain::Results(results)) => start.history.push(Said::Results(results)),
            // The supervisor has stopped the task.
            None => return Ok(()),
            Some(ToBrain::Start(_)) => return Err(BrainError::Unexpected),
        }
    }
}

/// Asks the model and tells the supervisor what it said; nothing if it could not be asked.
fn think(start: &Start, output: &mut impl Write) -> Result<Option<Answer>, BrainError> {
    let mut piece = |text: String| write_line(output, &FromBrain::Text(text));
    match ask::ask(start, &mut piece) {
        Ok(answer) => {
            let Answer { turn, tokens, stop } = answer.clone();
            let grant = start.grant.clone();
            write_line(output, &FromBrain::Turn { grant, turn, tokens, stop })?;
            Ok(Some(answer))
        }
        Err(failure) => {
            let (reason, refused) = (failure.to_string(), failure.is_refusal());
            write_line(output, &FromBrain::Failed { reason, refused })?;
            Ok(None)
        }
    }
}
