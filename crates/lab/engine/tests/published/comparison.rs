//! The model's figure beside each published one, and the page of them.

use std::fmt::Write as _;

use crate::cpu;
use crate::points::{FITTED, Figure, HELD_OUT, Setting};

const PAGE: &str = include_str!("../../../../../docs/measured/engine.md");

/// Published figure with the model's.
#[derive(Clone, Copy, Debug)]
struct Compared {
    setting: Setting,
    figure: Figure,
    model: f64,
}

impl Compared {
    /// Returns the relative error of the model: positive if its figure is larger.
    fn error_percent(&self) -> f64 {
        (self.model / self.figure.published - 1.0) * 100.0
    }
}

fn compare(settings: &[Setting]) -> Vec<Compared> {
    let of_setting = |setting: &Setting| {
        let outcome = (setting.run)();
        let compared = |figure: &Figure| Compared {
            setting: *setting,
            figure: *figure,
            model: (figure.quantity.of)(&outcome),
        };
        setting.figures.iter().map(compared).collect::<Vec<_>>()
    };
    settings.iter().flat_map(of_setting).collect()
}

#[test]
fn every_error_is_within_its_bound() {
    for compared in compare(&[FITTED, cpu::FITTED, HELD_OUT, cpu::HELD_OUT].concat()) {
        let error = compared.error_percent();
        assert!(error.abs() <= compared.figure.bound_percent, "{error} %: {compared:?}");
    }
}

#[test]
fn the_page_has_the_figures_of_the_model() {
    let (_, rest) = PAGE.split_once("<!-- begin points -->").unwrap();
    let (written, _) = rest.split_once("<!-- end points -->").unwrap();
    assert_eq!(written.trim(), tables().trim(), "put the printed tables into the page");
}

#[test]
#[ignore = "prints the tables of docs/measured/engine.md: cargo test -p spillway-engine --test published -- --ignored --nocapture"]
fn print_the_tables() {
    println!("{}", tables());
}

fn tables() -> String {
    let held_out = compare(&[HELD_OUT, cpu::HELD_OUT].concat());
    let mut text = String::from("Fitted:\n\n");
    table(&mut text, &compare(&[FITTED, cpu::FITTED].concat()));
    text += "\nHeld out:\n\n";
    table(&mut text, &held_out);
    text += "\n| held out | figures | mean absolute error | median | mean error |\n|---|--:|--:|--:|--:|\n";
    for machine in ["l4", "a100", "cpu"] {
        let of_machine = held_out.iter().filter(|compared| compared.setting.machine == machine);
        summary(&mut text, &format!("`{machine}`"), of_machine);
    }
    text
}

fn table(text: &mut String, rows: &[Compared]) {
    *text += "| machine | load | quantity | source | published | model | error | bound |\n";
    *text += "|---|---|---|---|--:|--:|--:|--:|\n";
    for row in rows {
        let Setting { machine, load, source, .. } = row.setting;
        let Figure { quantity, published, bound_percent } = row.figure;
        writeln!(
            text,
            "| `{machine}` | {load} | {} | {source} | {} | {} | {:+.1} % | {bound_percent:.0} % |",
            quantity.name,
            rounded(published),
            rounded(row.model),
            row.error_percent(),
        )
        .unwrap();
    }
}

fn summary<'a>(text: &mut String, name: &str, rows: impl Iterator<Item = &'a Compared>) {
    let errors: Vec<f64> = rows.map(Compared::error_percent).collect();
    let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let count = sizes.len();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let median = f64::midpoint(sizes[(count - 1) / 2], sizes[count / 2]);
    writeln!(
        text,
        "| {name} | {count} | {:.0} % | {median:.0} % | {:+.0} % |",
        mean(&sizes),
        mean(&errors)
    )
    .unwrap();
}

/// Writes a figure with three digits or more, and a comma after thousands.
fn rounded(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    match digits.len().checked_sub(3) {
        Some(at) if at > 0 => format!("{},{}", &digits[..at], &digits[at..]),
        _ => digits,
    }
}
