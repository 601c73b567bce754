//! Notices an agent that does the same thing over and over.

use serde_json::Value;

use crate::bounds::Stop;

/// Calls that are looked back at.
const LOOK_BACK: usize = 9;
/// Periods of a circle, with how many calls show it.
const CIRCLES: [(usize, usize); 2] = [(2, 8), (3, 9)];

/// One call and what came of it, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Done {
    tool: String,
    both: [u8; 32],
}

/// The last calls, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Repetition {
    last: Vec<Done>,
    longest: usize,
}

impl Repetition {
    pub(crate) fn looking_back(repeats: u32) -> Repetition {
        let longest = LOOK_BACK.max(usize::try_from(repeats).unwrap_or(usize::MAX).min(1000));
        Repetition { last: Vec::new(), longest }
    }

    pub(crate) fn add(&mut self, tool: &str, input: &Value, result: &str) {
        let mut hasher = blake3::Hasher::new();
        // Keys of objects are sorted, so that their order means nothing.
        for part in [tool.as_bytes(), input.to_string().as_bytes(), result.as_bytes()] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        self.last.push(Done { tool: tool.to_owned(), both: *hasher.finalize().as_bytes() });
        if self.last.len() > self.longest.max(LOOK_BACK) {
            self.last.remove(0);
        }
    }

    pub(crate) fn forget(&mut self) {
        self.last.clear();
    }

    pub(crate) fn noticed(&self, repeats: u32) -> Option<Stop> {
        let newest = self.last.last()?;
        let same = self.last.iter().rev().take_while(|done| *done == newest).count();
        if same >= usize::try_from(repeats).unwrap_or(usize::MAX).max(2) {
            let times = u32::try_from(same).unwrap_or(u32::MAX);
            return Some(Stop::Repeating { tool: newest.tool.clone(), times });
        }
        CIRCLES.iter().find_map(|(period, length)| {
            let begins = self.last.len().checked_sub(*length)?;
            let part = self.last.get(begins..)?;
            let round = part.iter().zip(part.get(*period..)?).all(|(one, next)| one == next);
            let tools = part.get(..*period)?.iter().map(|done| done.tool.clone()).collect();
            round.then_some(Stop::Cycle { tools })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn after(calls: &[(&str, &str)]) -> Option<&'static str> {
        let mut repetition = Repetition::looking_back(3);
        for (tool, result) in calls {
            repetition.add(tool, &json!({"a": 1, "b": 2}), result);
        }
        repetition.noticed(3).map(|stop| stop.word())
    }

    #[test]
    fn the_same_call_with_the_same_result_is_noticed_the_third_time() {
        assert_eq!(after(&[("a", "x"), ("a", "x")]), None);
        assert_eq!(after(&[("a", "x"), ("a", "x"), ("a", "x")]), Some("repeating"));
        assert_eq!(after(&[("a", "x"), ("a", "y"), ("a", "x")]), None);
    }

    #[test]
    fn a_circle_is_noticed_and_progress_is_none() {
        let round = [("a", "x"), ("b", "y")].repeat(4);
        assert_eq!(after(&round), Some("cycle"));
        assert_eq!(after(&round[..7]), None);
        assert_eq!(after(&[("a", "x"), ("b", "y"), ("c", "z")].repeat(3)), Some("cycle"));
        let mut progress = round.clone();
        progress[6] = ("a", "another");
        assert_eq!(after(&progress), None);
    }

    #[test]
    fn it_remembers_only_so_much() {
        let mut repetition = Repetition::looking_back(3);
        for number in 0..1000 {
            repetition.add("a", &json!(number), "x");
        }
        assert!(repetition.last.len() <= LOOK_BACK);
    }
}
