//! Terminal that a picture has to itself.

use std::time::Duration;

use anyhow::Result;
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::widgets::Widget;

use crate::output;

/// Most keys that wait to be taken: more are of a key that is held down.
const PRESSED_MAX: usize = 16;

/// Alternate screen of the terminal; the former content comes back at the end.
#[derive(Debug)]
pub(crate) struct FullScreen {
    terminal: DefaultTerminal,
    /// Keys that were pressed and not taken yet.
    pressed: Vec<char>,
}

impl FullScreen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Returns an error if standard output is no terminal, or refuses.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { terminal: ratatui::try_init()?, pressed: Vec::new() })
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
                if let KeyCode::Char(pressed) = key.code
                    && self.pressed.len() < PRESSED_MAX
                {
                    self.pressed.push(pressed);
                }
            }
        }
        self.terminal.draw(|frame| {
            frame.render_widget(picture, frame.area());
            disarm(frame.buffer_mut());
        })?;
        Ok(false)
    }

    /// Takes the keys that were pressed, without those that end the picture.
    pub(crate) fn take_pressed(&mut self) -> Vec<char> {
        std::mem::take(&mut self.pressed)
    }
}

/// Replaces control characters of the terminal: much of a picture comes from nodes.
fn disarm(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if cell.symbol().contains(output::is_order) {
            cell.set_symbol("\u{fffd}");
        }
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    #[test]
    fn no_picture_gives_orders_to_a_terminal() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 40, 1));
        let name = "gpu\u{202e}1 \u{2066}a\u{200f}\u{2028}b\u{1b}[2J é";
        buffer.set_string(0, 0, name, Style::default());
        disarm(&mut buffer);
        let shown: String = buffer.content.iter().map(|cell| cell.symbol()).collect();
        assert!(!shown.contains(output::is_order), "{shown:?}");
        assert!(shown.starts_with("gp") && shown.contains('é'), "{shown:?}");
    }
}
