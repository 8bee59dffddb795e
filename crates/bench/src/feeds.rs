//! Two feeds as they are in the world, made up: prices (small, many, each number new) and scores of
//! matches (large, few, each update changes little).

/// A feed: topics, and their next values.
pub(crate) trait Feed {
    /// Updates a second.
    fn per_second(&self) -> usize;
    /// The next update: topic and JSON.
    fn next(&mut self) -> (String, String);
}

/// Numbers that look random, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// 100 symbols, 10 updates a second each, 205 to 290 bytes: a quote with two levels of each side.
pub(crate) struct Prices {
    cents: Vec<u64>,
    opened: Vec<u64>,
    volumes: Vec<u64>,
    step: u64,
    random: Random,
}

impl Prices {
    pub(crate) fn new() -> Self {
        let mut random = Random(7);
        let cents: Vec<u64> = (0..100).map(|_| 1_000 + random.below(90_000)).collect();
        Self { opened: cents.clone(), cents, volumes: vec![0; 100], step: 0, random }
    }
}

impl Feed for Prices {
    fn per_second(&self) -> usize {
        1_000
    }

    fn next(&mut self) -> (String, String) {
        let at = (self.step % 100) as usize;
        self.step += 1;
        self.cents[at] = (self.cents[at] + self.random.below(21)).saturating_sub(10).max(100);
        self.volumes[at] += self.random.below(500);
        let (last, volume) = (self.cents[at], self.volumes[at]);
        let money = |cents: u64| format!("{}.{:02}", cents / 100, cents % 100);
        let change = last as f64 / self.opened[at] as f64 * 100.0 - 100.0;
        let mut size = || self.random.below(5_000);
        let json = format!(
            r#"{{"symbol":"SYM{at:02}","last":{},"change_percent":{change:.2},"volume":{volume},"bids":[{{"price":{},"size":{}}},{{"price":{},"size":{}}}],"asks":[{{"price":{},"size":{}}},{{"price":{},"size":{}}}],"time_ms":{}}}"#,
            money(last),
            money(last - 1),
            size(),
            money(last - 2),
            size(),
            money(last + 1),
            size(),
            money(last + 2),
            size(),
            1_700_000_000_000 + self.step,
        );
        (format!("prices/SYM{at:02}"), json)
    }
}

/// 20 matches, 2 updates a second each, about 2.6 kB: teams with 11 players each, and what happened.
pub(crate) struct Scores {
    matches: Vec<Match>,
    step: u64,
    random: Random,
}

struct Match {
    second: u64,
    goals: [u64; 2],
    passes: [[u64; 11]; 2],
    shots: [[u64; 11]; 2],
    events: Vec<String>,
}

impl Scores {
    pub(crate) fn new() -> Self {
        let new = |_| Match {
            second: 0,
            goals: [0; 2],
            passes: [[0; 11]; 2],
            shots: [[0; 11]; 2],
            events: vec![r#"{"minute":0,"type":"kick-off"}"#.into()],
        };
        Self { matches: (0..20).map(new).collect(), step: 0, random: Random(11) }
    }
}

impl Feed for Scores {
    fn per_second(&self) -> usize {
        40
    }

    fn next(&mut self) -> (String, String) {
        let at = (self.step % 20) as usize;
        self.step += 1;
        let (team, player) = (self.random.below(2) as usize, self.random.below(11) as usize);
        let (is_shot, is_goal) = (self.random.below(20) == 0, self.random.below(400) == 0);
        let game = &mut self.matches[at];
        game.second += 1;
        game.passes[team][player] += 1;
        game.shots[team][player] += u64::from(is_shot);
        if is_goal {
            game.goals[team] += 1;
            let minute = game.second / 60;
            let event =
                format!(r#"{{"minute":{minute},"type":"goal","team":{team},"player":{player}}}"#);
            game.events.push(event);
        }
        (format!("scores/match-{at}"), game.json(at))
    }
}

impl Match {
    fn json(&self, at: usize) -> String {
        let team = |team: usize| {
            let player = |player: usize| {
                format!(
                    r#"{{"number":{},"name":"Player {} of {team}","passes":{},"shots":{},"cards":[],"is_on_field":true}}"#,
                    player + 1,
                    player + 1,
                    self.passes[team][player],
                    self.shots[team][player],
                )
            };
            let players: Vec<String> = (0..11).map(player).collect();
            format!(
                r#"{{"name":"Team {team}","goals":{},"players":[{}]}}"#,
                self.goals[team],
                players.join(",")
            )
        };
        format!(
            r#"{{"match":"match-{at}","clock":"{:02}:{:02}","home":{},"away":{},"events":[{}]}}"#,
            self.second / 60,
            self.second % 60,
            team(0),
            team(1),
            self.events.join(","),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feeds_are_json_of_the_size_that_they_say() {
        let feeds: [(Box<dyn Feed>, std::ops::Range<usize>); 2] =
            [(Box::new(Prices::new()), 205..290), (Box::new(Scores::new()), 2_000..3_000)];
        for (mut feed, bytes) in feeds {
            for _ in 0..200 {
                let (topic, json) = feed.next();
                serde_json::from_str::<serde_json::Value>(&json).expect("valid");
                assert!(bytes.contains(&json.len()), "{topic}: {} bytes", json.len());
            }
        }
    }
}
