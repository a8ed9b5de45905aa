//! Small SVG charts: bars with a limit, and lines over time.
//!
//! Written by hand: a crate for charts would be one more dependency for two fixed charts.

use std::fmt::Write as _;

/// Colours of the first and the second series, readable on light and dark pages.
const COLOURS: [&str; 2] = ["#3b82c4", "#d9822b"];
const LIMIT_COLOUR: &str = "#c0392b";
const TEXT_COLOUR: &str = "#777";

const WIDTH: f64 = 720.0;

/// Bar chart with a line at the limit.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    /// Title above the chart.
    pub(crate) title: String,
    /// Name, value, and true if the limit applies.
    pub(crate) bars: Vec<(String, f64, bool)>,
    /// Value of the limit.
    pub(crate) limit: f64,
}

/// Name of a line, and its points from left to right.
pub(crate) type Line = (String, Vec<(f64, f64)>);

/// Panel with up to two lines over the same axis; a vertical mark is at zero.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// Title above the panel.
    pub(crate) title: String,
    /// Lines of the panel.
    pub(crate) lines: Vec<Line>,
}

/// Draws a bar chart.
pub(crate) fn bars(chart: &Bars) -> String {
    const ROW: f64 = 24.0;
    const LEFT: f64 = 210.0;
    const TOP: f64 = 40.0;
    let room = WIDTH - LEFT - 70.0;
    // Leaves room for the line of the limit if all bars are shorter.
    let most = chart.bars.iter().map(|(_, value, _)| *value).fold(chart.limit * 1.2, f64::max);
    let height = TOP + ROW * chart.bars.len() as f64 + 16.0;
    let mut body = text(8.0, 20.0, "start", &chart.title);
    for (index, (name, value, is_bound)) in chart.bars.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        let width = room * value / most;
        let colour = COLOURS[usize::from(!is_bound)];
        body.push_str(&text(LEFT - 8.0, y + 15.0, "end", name));
        let bar = format!(
            "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"16\" fill=\"{colour}\"/>\n",
            y + 3.0
        );
        body.push_str(&bar);
        body.push_str(&text(LEFT + width + 6.0, y + 15.0, "start", &format!("{value:.2}")));
    }
    let x = LEFT + room * chart.limit / most;
    body.push_str(&dashed(x, TOP - 4.0, height - 12.0));
    body.push_str(&text(x + 4.0, TOP - 8.0, "start", &format!("limit {}", chart.limit)));
    document(height, &body)
}

/// Draws panels, one below the other.
pub(crate) fn panels(title: &str, unit: &str, panels: &[Panel]) -> String {
    const HEIGHT: f64 = 150.0;
    const TOP: f64 = 34.0;
    let mut body = text(8.0, 20.0, "start", title);
    for (index, one) in panels.iter().enumerate() {
        body.push_str(&panel(one, unit, TOP + HEIGHT * index as f64, HEIGHT));
    }
    document(TOP + HEIGHT * panels.len() as f64 + 8.0, &body)
}

fn panel(panel: &Panel, unit: &str, top: f64, height: f64) -> String {
    const LEFT: f64 = 60.0;
    let (room_x, room_y) = (WIDTH - LEFT - 20.0, height - 54.0);
    let base = top + height - 22.0;
    let points = || panel.lines.iter().flat_map(|(_, points)| points);
    let xs = || points().map(|(x, _)| *x);
    // The axes always hold 0 and 1, so that no scale divides by zero.
    let (first, last) = (xs().fold(0.0, f64::min), xs().fold(1.0, f64::max));
    let most = points().map(|(_, y)| *y).fold(1.0, f64::max);
    let place = |(x, y): (f64, f64)| {
        (LEFT + room_x * (x - first) / (last - first), base - room_y * y / most)
    };
    let mut body = text(LEFT, top + 16.0, "start", &panel.title);
    let (left, _) = place((first, 0.0));
    let _: std::fmt::Result = writeln!(
        body,
        "<path d=\"M{left:.1} {:.1}V{base:.1}H{:.1}\" fill=\"none\" stroke=\"{TEXT_COLOUR}\"/>",
        base - room_y,
        WIDTH - 20.0
    );
    body.push_str(&text(LEFT - 6.0, base - room_y + 10.0, "end", &format!("{most:.0} {unit}")));
    body.push_str(&text(LEFT - 6.0, base, "end", "0"));
    body.push_str(&dashed(place((0.0, 0.0)).0, base - room_y, base));
    for at in [first, 0.0, last] {
        body.push_str(&text(place((at, 0.0)).0, base + 14.0, "middle", &format!("{at:.0} s")));
    }
    for (index, (name, points)) in panel.lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let places = points.iter().map(|point| place(*point));
        let path: Vec<String> = places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _: std::fmt::Result = writeln!(
            body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        let x = WIDTH - 190.0 + 90.0 * index as f64;
        let _: std::fmt::Result = writeln!(
            body,
            "<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>",
            top + 7.0
        );
        body.push_str(&text(x + 14.0, top + 16.0, "start", name));
    }
    body
}

fn dashed(x: f64, from: f64, until: f64) -> String {
    format!(
        "<path d=\"M{x:.1} {from:.1}V{until:.1}\" stroke=\"{LIMIT_COLOUR}\" stroke-dasharray=\"4 3\"/>\n"
    )
}

fn text(x: f64, y: f64, anchor: &str, content: &str) -> String {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>\n")
}

fn document(height: f64, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"{TEXT_COLOUR}\">\n{body}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(svg: &str, attribute: &str) -> Vec<f64> {
        let before = format!(" {attribute}=\"");
        let starts = svg.split(&before).skip(1);
        starts.filter_map(|rest| rest.split('"').next()?.parse().ok()).collect()
    }

    #[test]
    fn bars_are_in_proportion_and_stay_inside() {
        let bar = |name: &str, value| (name.to_owned(), value, true);
        let bars = vec![bar("a<b", 1.0), bar("c", 4.0)];
        let svg = super::bars(&Bars { title: "t & u".to_owned(), bars, limit: 1.5 });
        assert!(svg.contains("a&lt;b") && svg.contains("t &amp; u") && svg.contains("limit 1.5"));
        let widths = numbers(&svg, "width");
        assert_eq!(widths.len(), 2);
        assert!((widths[1] / widths[0] - 4.0).abs() < 0.01, "{widths:?}");
        assert!(numbers(&svg, "x").iter().all(|x| (0.0..=WIDTH).contains(x)));
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn lines_keep_their_points_inside_the_panel() {
        let line = ("off".to_owned(), vec![(-2.0, 10.0), (0.0, 300.0), (5.0, 0.0)]);
        let panel = Panel { title: "p".to_owned(), lines: vec![line.clone(), line] };
        let svg = panels("t", "ms", &[panel.clone(), panel]);
        let lines: Vec<&str> = svg.split("points=\"").skip(1).collect();
        assert_eq!(lines.len(), 4);
        let last = lines[3].split('"').next().unwrap();
        let points: Vec<(f64, f64)> = last
            .split(' ')
            .map(|point| point.split_once(',').unwrap())
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect();
        assert_eq!(points.len(), 3);
        assert!(points.is_sorted_by_key(|(x, _)| *x) && points[2].0 <= WIDTH);
        // Larger values are higher up, which is a smaller y.
        assert!(points[1].1 < points[0].1 && points[0].1 < points[2].1, "{points:?}");
    }

    #[test]
    fn nothing_to_draw_is_drawn_without_a_division_by_zero() {
        let empty = Panel { title: String::new(), lines: Vec::new() };
        assert!(!panels("t", "ms", &[empty]).contains("NaN"));
        let svg = bars(&Bars { title: String::new(), bars: Vec::new(), limit: 1.5 });
        assert!(!svg.contains("NaN"));
    }
}
