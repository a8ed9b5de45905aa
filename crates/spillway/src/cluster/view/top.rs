//! `spillway top`: regions, replicas and failing requests of a node, renewed each second.

use std::collections::BTreeMap;
use std::io::{IsTerminal, stdout};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::Widget;
use serde_json::{Value, json};

use super::regions;
use crate::cluster::client::AdminClient;
use crate::cluster::requests::request;
use crate::cluster::text::{self, Column};
use crate::connect::Connect;
use crate::full_screen::FullScreen;
use crate::screen::Table;
use crate::{output, replicas, screen};

/// Time between two pictures.
const PERIOD: Duration = Duration::from_secs(1);
/// Time between two looks at the keyboard.
const KEYS: Duration = Duration::from_millis(50);
/// Failed requests that are shown.
const FAILED: usize = 8;
/// Clients that are shown.
const CLIENTS: usize = 5;

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway top\n\
    Example: spillway top --once\n\n\
    q or Esc exits; r, f and t sort clients by requests, refused requests and tokens. It shows the view of one node: its own replicas and requests, and every region as \
    reported to it.")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    connect: Connect,
    /// Prints one update as text after a second, and exits.
    #[arg(long)]
    once: bool,
}

/// Shows pictures until the user ends it.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses, or the terminal is gone.
pub(crate) async fn run(args: &TopArgs) -> Result<()> {
    let client = AdminClient::new(&args.connect)?;
    let mut look = Look::default();
    if client.as_json || args.once || !stdout().is_terminal() {
        // Rates are those between two looks.
        if args.once {
            look.renew(&client).await?;
            tokio::time::sleep(PERIOD).await;
        }
        loop {
            look.renew(&client).await?;
            let picture = match client.as_json {
                true => look.as_json().to_string(),
                false => look.picture(screen::width()).lines.join("\n"),
            };
            output::line(&picture)?;
            if args.once {
                return Ok(());
            }
            tokio::time::sleep(PERIOD).await;
        }
    }
    let mut terminal = FullScreen::new()?;
    loop {
        match look.renew(&client).await {
            Ok(()) => look.fault = None,
            // The node may come back, so the last known state is shown with the reason.
            Err(error) => look.fault = Some(format!("{error:#}")),
        }
        let until = Instant::now() + PERIOD;
        while Instant::now() < until {
            if terminal.draw(&look)? {
                return Ok(());
            }
            for key in terminal.take_pressed() {
                look.order = ClientOrder::of_key(key).unwrap_or(look.order);
            }
            tokio::time::sleep(KEYS).await;
        }
    }
}

/// Figure by which clients are sorted, the largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ClientOrder {
    #[default]
    Requests,
    Refused,
    Tokens,
}

impl ClientOrder {
    /// Keys of the picture, as its last line shows them.
    const KEYS: &str = " q ends   clients by r requests, f refused, t tokens";

    fn of_key(key: char) -> Option<Self> {
        match key {
            'r' => Some(Self::Requests),
            'f' => Some(Self::Refused),
            't' => Some(Self::Tokens),
            _ => None,
        }
    }
}

/// Answers of the last poll.
#[derive(Debug, Default)]
struct Look {
    order: ClientOrder,
    node: Value,
    regions: Value,
    replicas: Value,
    /// Failed requests, newest first.
    failed: Vec<Value>,
    /// Requests that ended since the look before.
    ended: Vec<Value>,
    /// Time since the look before, in seconds.
    passed_s: f64,
    seen: Option<(Instant, u64)>,
    fault: Option<String>,
}

impl Look {
    async fn renew(&mut self, client: &AdminClient) -> Result<()> {
        let after = self.seen.map(|(_, number)| format!("&after={number}")).unwrap_or_default();
        self.node = client.read("/v1/node").await?;
        self.regions = regions::items(client).await?;
        self.replicas = client.read("/replicas").await?;
        let failed = client.read(&format!("/v1/requests?limit={FAILED}&failed=true")).await?;
        self.failed = failed["requests"].as_array().cloned().unwrap_or_default();
        let ended = client.read(&format!("/v1/requests?limit=1000{after}")).await?;
        let ended = ended["requests"].as_array().cloned().unwrap_or_default();
        let now = Instant::now();
        let newest = ended.first().and_then(|entry| entry["number"].as_u64());
        if let Some((before, number)) = self.seen {
            self.passed_s = now.duration_since(before).as_secs_f64();
            self.seen = Some((now, newest.unwrap_or(number)));
            self.ended = ended;
        } else {
            // How long those took to come is not known.
            self.seen = Some((now, newest.unwrap_or(0)));
        }
        Ok(())
    }

    /// Returns requests a second since the look before, and of these the refused ones by reason.
    fn rates(&self) -> (f64, BTreeMap<String, f64>) {
        let each = if self.passed_s > 0.0 { 1.0 / self.passed_s } else { 0.0 };
        let mut sheds = BTreeMap::new();
        for reason in self.ended.iter().filter_map(|entry| entry["shed"].as_str()) {
            *sheds.entry(reason.to_owned()).or_insert(0.0) += each;
        }
        (self.ended.len() as f64 * each, sheds)
    }

    /// Returns the clients with most requests since the look before, by key or tenant: requests,
    /// refused ones and generated tokens a second, and the share of all requests.
    fn clients(&self) -> Value {
        let mut clients: BTreeMap<&str, [f64; 3]> = BTreeMap::new();
        for entry in &self.ended {
            let who = ["key", "tenant"].into_iter().find_map(|name| entry[name].as_str());
            let client = clients.entry(who.unwrap_or("-")).or_default();
            let refused = if entry["shed"].is_string() { 1.0 } else { 0.0 };
            let tokens = entry["completion_tokens"].as_f64().unwrap_or_default();
            for (sum, more) in client.iter_mut().zip([1.0, refused, tokens]) {
                *sum += more;
            }
        }
        let mut clients: Vec<_> = clients.into_iter().collect();
        // Stable, so clients with as many requests stay in the order of their names.
        let by = self.order as usize;
        clients.sort_by(|(_, one), (_, other)| other[by].total_cmp(&one[by]));
        let each = if self.passed_s > 0.0 { 1.0 / self.passed_s } else { 0.0 };
        let share = 100.0 / self.ended.len().max(1) as f64;
        let row = |(who, [requests, refused, tokens]): (&str, [f64; 3])| {
            let whole = |number: f64| number.round() as u64;
            json!({
                "who": who, "requests_per_s": whole(requests * each),
                "refused_per_s": whole(refused * each), "tokens_per_s": whole(tokens * each),
                "share_percent": whole(requests * share),
            })
        };
        clients.into_iter().take(CLIENTS).map(row).collect()
    }

    /// Returns the 95th percentile of the times to first token since the look before, in
    /// milliseconds.
    fn p95_ms(&self) -> Option<f64> {
        let times = self.ended.iter().filter_map(|entry| entry["first_token_ms"].as_f64());
        let mut times: Vec<f64> = times.collect();
        times.sort_by(f64::total_cmp);
        times.get((times.len() * 95).div_ceil(100).checked_sub(1)?).copied()
    }

    fn as_json(&self) -> Value {
        let (requests_per_s, sheds_per_s) = self.rates();
        json!({
            "node": self.node, "regions": self.regions, "replicas": self.replicas,
            "requests_per_s": requests_per_s, "sheds_per_s": sheds_per_s,
            "first_token_p95_ms": self.p95_ms(), "clients": self.clients(),
            "failed": self.failed,
        })
    }

    fn picture(&self, width: usize) -> Picture {
        let mut lines = screen::wrapped(self.node["summary"].as_str().unwrap_or("-"), width);
        let verdict = lines.len();
        let (rate, sheds) = self.rates();
        let p95 = self.p95_ms().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0} ms"));
        let mut now = format!("{rate:.0} requests/s, first token p95 {p95}");
        for (reason, rate) in &sheds {
            now.push_str(&format!(", {rate:.0}/s refused for {reason}"));
        }
        let log = &self.node["log"];
        if let Some(leader) = log["leader"]["node"].as_str() {
            let number = |name: &str| log[name].as_u64().unwrap_or_default();
            now.push_str(&format!(
                "; {leader} leads in term {}, entry {}",
                number("term"),
                number("applied_index")
            ));
        }
        lines.extend(screen::wrapped(&now, width));
        let mut titles = Vec::new();
        let mut part = |title: &str, text: String| {
            titles.push(lines.len() + 1);
            lines.extend([String::new(), title.to_owned()]);
            lines.extend(text.lines().map(str::to_owned));
        };
        part("REGIONS", regions::table(&self.regions).text(width));
        part("REPLICAS", replicas::table(&self.replicas, width));
        if !self.ended.is_empty() {
            part("CLIENTS", text::records(CLIENT_COLUMNS, &self.clients()).text(width));
        }
        if !self.failed.is_empty() {
            let heading = request::COLUMNS.map(|column| column.name);
            let table = Table::new(&heading, self.failed.iter().map(request::row));
            part("FAILED LAST", table.dropping(&request::DROPPED).text(width));
        }
        Picture { lines, titles, verdict }
    }
}

/// Columns of [`Look::clients`].
const CLIENT_COLUMNS: &[Column] = &[
    ("who", "/who"),
    ("requests/s", "/requests_per_s"),
    ("refused/s", "/refused_per_s"),
    ("tokens/s", "/tokens_per_s"),
    ("share %", "/share_percent"),
];

/// Lines of text, which of them are titles, and how many the sentence about the node's health has.
#[derive(Debug)]
struct Picture {
    lines: Vec<String>,
    titles: Vec<usize>,
    verdict: usize,
}

/// Returns the colour of a row about something that does not serve (red) or not as usual (yellow).
fn colour_of(row: &str) -> Option<Color> {
    const AWAY: [&str; 5] = ["down", "ejected", "silent", "unreachable", "failing"];
    const UNUSUAL: [&str; 6] =
        ["trial", "ramping", "starting", "warming", "draining", "evacuating"];
    // Words of states, not parts of names.
    let mut words = row.split([' ', ':', ',']);
    match words.find_map(|word| {
        let is_away = AWAY.contains(&word);
        (is_away || UNUSUAL.contains(&word)).then_some(is_away)
    }) {
        Some(true) => Some(Color::Red),
        Some(false) => Some(Color::Yellow),
        None => row.contains(" is slow: ").then_some(Color::Yellow),
    }
}

impl Widget for &Look {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let picture = self.picture(usize::from(area.width));
        let colour = match self.node["health"].as_str() {
            Some("healthy") => Color::Green,
            Some("degraded") => Color::Yellow,
            _ => Color::Red,
        };
        let shown = picture.lines.iter().enumerate().zip(area.rows());
        for ((place, line), row) in shown {
            let style = match place {
                _ if place < picture.verdict => Style::new().fg(colour).bold(),
                _ if picture.titles.contains(&place) => Style::new().bold(),
                _ => colour_of(line).map_or_else(Style::new, |colour| Style::new().fg(colour)),
            };
            Line::styled(line.as_str(), style).render(row, buffer);
        }
        if let (Some(fault), Some(row)) = (&self.fault, area.rows().next_back()) {
            Line::from(format!(" {fault} ")).white().on_red().render(row, buffer);
        } else if let Some(row) = area.rows().nth(picture.lines.len() + 1) {
            Line::from(ClientOrder::KEYS).dim().render(row, buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look() -> Look {
        let failed = json!({
            "number": 4, "ended_ms": 0, "status": 503, "shed": "queue_full", "end": "answered",
            "duration_ms": 1.0,
        });
        let ended = |first: f64| json!({ "number": 3, "first_token_ms": first, "key": "acme-1", "completion_tokens": 8 });
        Look {
            node: json!({ "health": "healthy", "summary": "healthy: serves 2 of 2 replicas" }),
            regions: json!([{ "key": "eu", "world": { "is_own": true, "is_heard": true } }]),
            replicas: json!([{ "name": "gpu-a", "admission": "open", "state": "serving" }]),
            failed: vec![failed.clone()],
            ended: vec![ended(10.0), ended(20.0), failed],
            passed_s: 2.0,
            ..Look::default()
        }
    }

    #[test]
    fn rates_are_of_the_time_since_the_look_before() {
        let (rate, sheds) = look().rates();
        assert!((rate - 1.5).abs() < 1e-9);
        assert_eq!(sheds.into_iter().collect::<Vec<_>>(), [("queue_full".to_owned(), 0.5)]);
        assert_eq!(look().p95_ms(), Some(20.0));
        assert_eq!(Look::default().p95_ms(), None);
    }

    #[test]
    fn the_picture_begins_with_the_sentence_and_has_a_part_for_each_subject() {
        let picture = look().picture(120);
        assert_eq!(picture.lines[0], "healthy: serves 2 of 2 replicas");
        let titles: Vec<&str> = picture.titles.iter().map(|at| &*picture.lines[*at]).collect();
        assert_eq!(titles, ["REGIONS", "REPLICAS", "CLIENTS", "FAILED LAST"]);
        assert!(picture.lines.iter().any(|line| line.contains("gpu-a")));
    }

    #[test]
    fn the_picture_fits_the_width_and_breaks_the_sentence_between_words() {
        let summary = "degraded: serves 1 of 2 replicas (gpu-b is down); region eu-central-1 is \
                       silent for 49 s; 2 of 3 voters";
        let look = Look { node: json!({ "health": "degraded", "summary": summary }), ..look() };
        let picture = look.picture(80);
        assert!(picture.lines.iter().all(|line| line.chars().count() <= 80), "{picture:?}");
        assert_eq!(picture.lines[..picture.verdict].join(" "), summary);
        assert_eq!(picture.verdict, 2);
    }

    #[test]
    fn rows_of_what_does_not_serve_have_a_colour() {
        for (row, colour) in [
            ("us-gpu-a  127.0.0.1:9101  serving   1 of 64", None),
            ("slow-down-1  127.0.0.1:9101  serving", None),
            ("us-gpu-b  127.0.0.1:9102  down: connection refused", Some(Color::Red)),
            ("ap-northeast-1  silent  -", Some(Color::Red)),
            ("us-gpu-b  127.0.0.1:9102  ramping 15 %", Some(Color::Yellow)),
            ("us-gpu-b is slow: its first token takes 439 ms", Some(Color::Yellow)),
        ] {
            assert_eq!(colour_of(row), colour, "{row}");
        }
    }

    #[test]
    fn keys_sort_clients() {
        let served = |who: &str, tokens: u32| json!({ "number": 1, "key": who, "completion_tokens": tokens });
        let refused = json!({ "number": 2, "key": "b", "shed": "request_rate" });
        let ended = vec![served("a", 9), served("a", 9), served("c", 90), refused];
        let first = |key: char| {
            let order = ClientOrder::of_key(key).unwrap();
            let look = Look { order, ended: ended.clone(), passed_s: 1.0, ..Look::default() };
            look.clients()[0]["who"].clone()
        };
        assert_eq!(['r', 'f', 't'].map(first), ["a", "b", "c"]);
        assert!(ClientOrder::of_key('x').is_none());
    }

    #[test]
    fn clients_with_most_requests_come_first_with_what_they_were_refused() {
        let rows = |look: &Look| {
            let table = text::table(CLIENT_COLUMNS, &look.clients());
            let row = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            table.lines().skip(1).map(row).collect::<Vec<_>>()
        };
        assert_eq!(rows(&look()), ["acme-1 1 0 8 67", "- 1 1 0 33"]);
        let refused = json!({ "number": 5, "shed": "request_rate", "tenant": "initech" });
        let flood = Look { ended: vec![refused; 40], passed_s: 2.0, ..Look::default() };
        assert_eq!(rows(&flood), ["initech 20 20 0 100"]);
        assert!(rows(&Look::default()).is_empty());
    }

    #[test]
    fn it_fits_any_terminal() {
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
            let area = Rect::new(0, 0, width, height);
            let mut buffer = Buffer::empty(area);
            let look = Look { fault: Some("no node there".to_owned()), ..look() };
            look.render(area, &mut buffer);
            let text: String = buffer.content().iter().map(|cell| cell.symbol()).collect();
            assert!(height < 24 || text.contains("no node there"), "{text}");
        }
    }
}
