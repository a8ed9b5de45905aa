//! Terminal that the panel has to itself while the demo runs.

use std::time::Duration;

use anyhow::{Result, bail};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};

use crate::demo::panel::Panel;

/// Alternate screen of the terminal; what was on the terminal before comes back at the end.
#[derive(Debug)]
pub(crate) struct Screen(DefaultTerminal);

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Returns an error if it is none, or refuses.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(ratatui::try_init()?))
    }

    /// Draws what has changed since the last time.
    ///
    /// # Errors
    /// Returns an error if the user ended the demo, or the terminal is gone.
    pub(crate) fn draw(&mut self, panel: &Panel) -> Result<()> {
        // Keys come here as events, Ctrl-C too, since the terminal passes each on as it is.
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()? {
                let is_interrupt =
                    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
                if is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    bail!("stopped before its end");
                }
            }
        }
        self.0.draw(|frame| frame.render_widget(panel, frame.area()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}
