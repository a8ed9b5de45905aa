//! Terminal that a picture has to itself.

use std::time::Duration;

use anyhow::Result;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::widgets::Widget;

/// Alternate screen of the terminal; what was on the terminal before comes back at the end.
#[derive(Debug)]
pub(crate) struct FullScreen(DefaultTerminal);

impl FullScreen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Returns an error if it is none, or refuses.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(ratatui::try_init()?))
    }

    /// Draws what has changed since the last time. Returns true if the user wants to end.
    ///
    /// # Errors
    /// Returns an error if the terminal is gone.
    pub(crate) fn draw<W>(&mut self, picture: &W) -> Result<bool>
    where
        for<'a> &'a W: Widget,
    {
        // Keys come here as events, Ctrl-C too, since the terminal passes each on as it is.
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()? {
                let is_interrupt =
                    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
                if is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(true);
                }
            }
        }
        self.0.draw(|frame| frame.render_widget(picture, frame.area()))?;
        Ok(false)
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}
