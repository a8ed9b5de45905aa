//! The page docs/measured/simulation.md has the figures that the simulator makes.

use std::process::Command;

const PAGE: &str = include_str!("../../../../docs/measured/simulation.md");

/// Returns the cells of the lines of a table that is written for a terminal or as Markdown.
fn lines(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().filter(|cell| *cell != "|").collect()).collect()
}

// A few lines of the page: all of them take minutes without optimisation.
#[test]
fn the_page_of_the_simulation_has_the_figures_of_the_command() {
    let done = Command::new(env!("CARGO_BIN_EXE_spillway-sim"))
        .args(["policies", "--policies", "predicted_latency", "--workloads", "chats,documents"])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let printed = String::from_utf8(done.stdout).unwrap();
    let page = lines(PAGE);
    let made: Vec<_> = lines(&printed).into_iter().filter(|line| !line.is_empty()).collect();
    // A head, and for each workload the policy beside the router that knows everything.
    assert_eq!(made.len(), 5, "{printed}");
    for line in made {
        assert!(page.contains(&line), "make the page anew by the command that it names: {line:?}");
    }
}
