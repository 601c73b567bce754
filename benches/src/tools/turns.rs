//! Everyone plays in turn, round by round, so that whatever else the machine does hits all alike.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::stats::Summary;

/// One turn lasts so long, or one play if that takes longer.
const TURN: Duration = Duration::from_millis(8);

/// One thing to be timed over and over.
pub(crate) struct Player<'a> {
    pub(crate) name: String,
    play: Box<dyn FnMut() -> Result<Duration> + 'a>,
    times: Vec<Duration>,
}

impl<'a> Player<'a> {
    pub(crate) fn new(name: &str, play: impl FnMut() -> Result<Duration> + 'a) -> Player<'a> {
        Player { name: name.to_owned(), play: Box::new(play), times: Vec::new() }
    }

    pub(crate) fn summary(&self) -> Option<Summary> {
        Summary::of(&self.name, &self.times)
    }

    fn once(&mut self) -> Result<Duration> {
        (self.play)().with_context(|| self.name.clone())
    }

    /// The first play is not counted: it would tell what the neighbour left in the caches.
    fn turn(&mut self) -> Result<()> {
        self.once()?;
        let until = Instant::now() + TURN;
        loop {
            let took = self.once()?;
            self.times.push(took);
            if Instant::now() >= until {
                return Ok(());
            }
        }
    }
}

pub(crate) fn play(players: &mut [Player], rounds: usize) -> Result<Vec<Summary>> {
    for round in 0..rounds {
        let count = players.len();
        for index in 0..count {
            players[(index + round) % count].turn()?;
        }
    }
    Ok(players.iter().filter_map(Player::summary).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_play_of_a_turn_is_not_counted() {
        let mut plays = 0;
        let mut players = [Player::new("x", || {
            plays += 1;
            std::thread::sleep(TURN);
            Ok(Duration::from_millis(plays))
        })];
        let summaries = play(&mut players, 2).unwrap();
        assert_eq!((summaries[0].runs, summaries[0].min_ms, summaries[0].max_ms), (2, 2.0, 4.0));
    }

    #[test]
    fn a_player_that_fails_ends_the_game_by_name() {
        let mut players = [Player::new("lame", || anyhow::bail!("fell"))];
        let error = play(&mut players, 1).unwrap_err();
        assert_eq!(format!("{error:#}"), "lame: fell");
    }
}
