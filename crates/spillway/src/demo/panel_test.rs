//! Pictures of the panel at several sizes.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;
use ratatui::widgets::Widget as _;

use super::*;

fn region(region: &'static str, in_flight: u32, p95_ms: f64) -> RegionNow {
    RegionNow {
        region,
        is_up: true,
        load_percent: 120,
        in_flight,
        in_flight_max: 12,
        waiting: 14,
        p50_ms: Some(24.0),
        p95_ms: Some(p95_ms),
        served: 47,
        shed: 0,
        failed: 0,
    }
}

fn panel() -> Panel {
    let mut panel = Panel::new();
    panel.begin("2 of 3: the same requests, with spilling", "Each node now sends a request on.");
    panel.passed_s = 22.5;
    panel.progress = 0.5;
    panel.console = "http://127.0.0.1:9900/console/".to_owned();
    let flow = |to, requests, recent| Flow { from: "us-east-1", to, rtt_ms: 93, requests, recent };
    let regions = [
        region("us-east-1", 12, 2_314.0),
        region("eu-central-1", 6, 120.0),
        region("ap-northeast-1", 0, 300.0),
    ];
    let flows = vec![flow("ap-northeast-1", 9, 0), flow("eu-central-1", 34, 12)];
    panel.show(Snapshot { seconds: 7.0, regions, flows });
    for _ in 0..5 {
        panel.remember();
    }
    panel
}

fn draw(panel: &Panel, width: u16, height: u16) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    panel.render(buffer.area, &mut buffer);
    buffer
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width);
    buffer.content.chunks(width).map(|row| row.iter().map(|cell| cell.symbol()).collect()).collect()
}

fn count(text: &str, symbol: char) -> usize {
    text.chars().filter(|&found| found == symbol).count()
}

#[test]
fn all_is_seen_at_80_columns_and_24_rows() {
    let lines = lines(&draw(&panel(), 80, 24));
    let text = lines.join("\n");
    for part in [
        "2 of 3: the same requests, with spilling",
        "22 s",
        "us-east-1  gets 120 % of what it can serve",
        "in flight 12 of 12",
        "waiting  14",
        "p50    24 p95  2314 ms",
        "ap-northeast-1",
        "▶ eu-central-1 34 requests, 93 ms away",
        "Each node now sends a request on.",
        "q ends the demo   console: http://127.0.0.1:9900/console/",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn bars_are_as_long_as_what_they_say() {
    for width in [80, 160] {
        let lines = lines(&draw(&panel(), width, 24));
        let bars: Vec<&String> = lines.iter().filter(|line| line.contains("in flight")).collect();
        let cells = |row: usize| ['█', '▌', '░'].map(|cell| count(bars[row], cell));
        let ([full, ..], [half, part, rest]) = (cells(0), cells(1));
        assert_eq!(cells(0), [full, 0, 0], "width {width}");
        assert_eq!([half, rest, 2 * half + part], [full / 2, full / 2, full], "width {width}");
        assert_eq!(cells(2), [0, 0, full], "width {width}");
        assert!(full > usize::from(width) / 4, "bars grow with the width {width}");
    }
}

#[test]
fn the_busiest_flow_stands_first_and_one_without_recent_requests_has_no_shaft() {
    let lines = lines(&draw(&panel(), 80, 24));
    let arrows: Vec<&String> = lines.iter().filter(|line| line.contains('▶')).collect();
    assert!(arrows[0].contains("eu-central-1") && count(arrows[0], '━') == 16, "{arrows:?}");
    assert!(arrows[1].contains("ap-northeast-1") && count(arrows[1], '━') == 0, "{arrows:?}");
}

#[test]
fn flows_stand_beside_the_regions_where_there_is_room() {
    let find = |width| {
        let lines = lines(&draw(&panel(), width, 40));
        lines.iter().position(|line| line.contains("who helps whom")).expect("the flows")
    };
    assert!(find(160) < find(119), "{} and {}", find(160), find(119));
}

#[test]
fn times_are_coloured_and_higher_the_longer_they_are() {
    assert_eq!([10.0, 316.0, 10_000.0, 1e9, 0.0].map(height), [1, 50, 100, 100, 1]);
    let colours = [200.0, 201.0, 1_001.0].map(colour_of);
    assert_eq!(colours, [Color::Green, Color::Yellow, Color::Red]);
    let buffer = draw(&panel(), 80, 24);
    let bars = buffer.content.iter().filter(|cell| "▁▂▃▄▅▆▇".contains(cell.symbol()));
    let red = bars.filter(|cell| cell.fg == Color::Red).count();
    assert_eq!(red, 5, "one bar for each second of the region above 1 s");
}

#[test]
fn a_lost_region_says_so_and_has_no_times() {
    let mut panel = panel();
    if let Some(now) = &mut panel.now {
        now.regions[2].is_up = false;
    }
    panel.remember();
    assert!(lines(&draw(&panel, 80, 24)).join("\n").contains("ap-northeast-1  LOST"));
    assert_eq!(panel.history[2].last(), Some(&None));
    assert_eq!(panel.history[0].last(), Some(&Some(2_314.0)));
}

#[test]
fn no_size_is_too_small_to_draw() {
    for (width, height) in [(1, 1), (10, 3), (40, 12), (79, 23), (300, 100)] {
        let drawn = draw(&panel(), width, height);
        assert_eq!(drawn.area, Rect::new(0, 0, width, height));
    }
}

#[test]
fn regions_have_one_height() {
    for height in 20..40 {
        let lines = lines(&draw(&panel(), 80, height));
        let tops = lines.iter().enumerate().filter(|(_, line)| line.starts_with('╭'));
        let tops: Vec<usize> = tops.map(|(row, _)| row).collect();
        assert_eq!(tops[1] - tops[0], tops[2] - tops[1], "{height} rows");
    }
}
