//! Plot of cost against the 95th percentile.

use std::fmt::Write;

use super::frontier::{BEST, Point, WITHIN};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;
/// Times with a line across the plot, in milliseconds.
const GRID_MS: [f64; 7] = [200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, 20_000.0];
/// Lines of the title: one line of all would be wider than the plot.
const TITLE: [&str; 2] = [
    "p95 of the time to first token (ms, logarithmic) by dollars an hour",
    "filled where no other point is cheaper and faster; the number of GPUs stands beside",
];
/// Room around the points on the scale of times, as a factor.
const ROOM: f64 = 1.2;

/// Returns an SVG with a line through the points of each series; points on the frontier are filled.
pub(super) fn plot(points: &[Point]) -> String {
    let scale = Scale::of(points);
    let mut body = scale.grid();
    let mut names: Vec<&str> = Vec::new();
    for point in points {
        if !names.contains(&point.series.as_str()) {
            names.push(&point.series);
        }
    }
    for (line, name) in names.into_iter().enumerate() {
        let own: Vec<&Point> = points.iter().filter(|point| point.series == name).collect();
        series(&mut body, &own, points, &scale);
        let _infallible = writeln!(
            body,
            r#"<text x="{:.0}" y="{:.0}" text-anchor="end" fill="{}">{name}</text>"#,
            WIDTH - RIGHT - 6.0,
            TOP + 16.0 * (line + 1) as f64,
            colour(name),
        );
    }
    format!(
        concat!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" "##,
            r##"font-family="sans-serif" font-size="12"><rect width="100%" height="100%" "##,
            r##"fill="#fff"/>{title}{body}</svg>"##,
            "\n"
        ),
        w = WIDTH,
        h = HEIGHT,
        title = title(),
        body = body
    )
}

fn title() -> String {
    let line = |(line, text): (usize, &&str)| {
        format!(r#"<text x="8" y="{:.0}">{text}</text>"#, 20.0 + 16.0 * line as f64)
    };
    TITLE.iter().enumerate().map(line).collect()
}

fn colour(series: &str) -> &'static str {
    match series {
        BEST => "#c2571a",
        WITHIN => "#7aa6c2",
        _ => "#0b6e4f",
    }
}

fn series(body: &mut String, own: &[&Point], all: &[Point], scale: &Scale) {
    let colour = own.first().map_or("", |point| colour(&point.series));
    let corners: Vec<String> = own
        .iter()
        .map(|point| format!("{:.1},{:.1}", scale.x(point.dollars_per_h), scale.y(point.p95_ms)))
        .collect();
    let _infallible = writeln!(
        body,
        r#"<polyline points="{}" fill="none" stroke="{colour}"/>"#,
        corners.join(" ")
    );
    for point in own {
        let (x, y) = (scale.x(point.dollars_per_h), scale.y(point.p95_ms));
        let fill = if point.is_on_frontier(all) { colour } else { "#fff" };
        let _infallible = writeln!(
            body,
            r##"<circle cx="{x:.1}" cy="{y:.1}" r="4" fill="{fill}" stroke="{colour}"/><text x="{:.1}" y="{:.1}" fill="#555" font-size="10">{:.0}</text>"##,
            x + 6.0,
            y - 5.0,
            point.gpus,
        );
    }
}

/// Ranges of the axes.
#[derive(Debug)]
struct Scale {
    dollars: [f64; 2],
    ms: [f64; 2],
}

impl Scale {
    fn of(points: &[Point]) -> Self {
        let range = |figure: fn(&Point) -> f64| {
            let figures = || points.iter().map(figure);
            [figures().fold(f64::INFINITY, f64::min), figures().fold(0.0, f64::max)]
        };
        let [least, most] = range(|point| point.dollars_per_h);
        let [fastest, slowest] = range(|point| point.p95_ms);
        Self {
            dollars: [least.floor(), most.ceil().max(least.floor() + 1.0)],
            ms: [fastest / ROOM, slowest * ROOM],
        }
    }

    fn x(&self, dollars: f64) -> f64 {
        let [least, most] = self.dollars;
        LEFT + (dollars - least) / (most - least) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, ms: f64) -> f64 {
        let [least, most] = self.ms.map(f64::ln);
        HEIGHT - BOTTOM - (ms.ln() - least) / (most - least) * (HEIGHT - TOP - BOTTOM)
    }

    fn grid(&self) -> String {
        let mut lines = String::new();
        for ms in GRID_MS.into_iter().filter(|ms| (self.ms[0]..=self.ms[1]).contains(ms)) {
            let y = self.y(ms);
            let _infallible = writeln!(
                lines,
                r##"<line x1="{LEFT}" x2="{:.0}" y1="{y:.1}" y2="{y:.1}" stroke="#ddd"/><text x="{:.0}" y="{:.1}" text-anchor="end" fill="#555">{ms:.0}</text>"##,
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
            );
        }
        for dollars in self.dollars[0] as u32..=self.dollars[1] as u32 {
            let x = self.x(f64::from(dollars));
            let _infallible = writeln!(
                lines,
                r##"<line x1="{x:.1}" x2="{x:.1}" y1="{:.0}" y2="{:.0}" stroke="#555"/><text x="{x:.1}" y="{:.0}" text-anchor="middle" fill="#555">{dollars} $</text>"##,
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 5.0,
                HEIGHT - BOTTOM + 20.0,
            );
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Widest mean width of a letter, in pixels: sans-serif fonts of 12 pixels have less.
    const LETTER: f64 = 7.0;

    #[test]
    fn no_line_of_the_title_is_wider_than_the_plot() {
        for text in TITLE {
            assert!(8.0 + LETTER * text.len() as f64 <= WIDTH, "{text}");
        }
        let title = title();
        assert!(title.contains(r#"y="20">p95"#) && title.contains(r#"y="36">filled"#), "{title}");
    }
}
