//! Content of a module: its declarations, imports and names.

use super::tokens::{Token, tokens};

/// Module as written down in a file, outside tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Module {
    /// Names of the modules that have files of their own.
    pub(super) declared: Vec<String>,
    /// Modules with their body in this file.
    pub(super) inline: Vec<(String, Self)>,
    /// Names of functions, types, constants and macros.
    pub(super) items: Vec<String>,
    pub(super) imports: Vec<Import>,
    /// Paths in code.
    pub(super) paths: Vec<Vec<String>>,
}

/// One name that a `use` brings in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Import {
    /// Path as it is written.
    pub(super) path: Vec<String>,
    /// Name in this module; None for all names of a module (`*`).
    pub(super) name: Option<String>,
    /// True if the import passes the name on to other modules.
    pub(super) is_public: bool,
}

/// Words that the name of an item follows.
const ITEMS: [&str; 8] = ["fn", "struct", "enum", "union", "trait", "type", "const", "static"];
/// Words that an item begins with, in which a comma is no end.
const OPENINGS: [&str; 10] =
    ["pub", "fn", "struct", "enum", "trait", "impl", "mod", "async", "unsafe", "const"];

/// Reads the text of a file.
pub(super) fn parse(text: &str) -> Module {
    let mut module = Module::default();
    Reader { tokens: &tokens(text), at: 0, depth: 0 }.read(&mut module);
    module
}

struct Reader<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    /// Number of brackets of all kinds that are open.
    depth: usize,
}

impl<'a> Reader<'a> {
    fn read(&mut self, module: &mut Module) {
        while let Some(&token) = self.tokens.get(self.at) {
            match token {
                Token::Mark('#') if self.is_attribute() => self.read_attribute(module),
                Token::Mark('{' | '(' | '[') => self.step(1),
                Token::Mark('}' | ')' | ']') => self.step(-1),
                Token::Word("use") if self.mark(1) != Some('<') => self.read_use(module),
                Token::Word("mod") if self.depth == 0 => self.read_mod(module),
                Token::Word(word) => self.read_word(word, module),
                Token::Text(_) | Token::Colons | Token::Mark(_) => self.at += 1,
            }
        }
    }

    fn step(&mut self, deeper: isize) {
        self.depth = self.depth.saturating_add_signed(deeper);
        self.at += 1;
    }

    fn word(&self, ahead: usize) -> Option<&'a str> {
        match self.tokens.get(self.at + ahead) {
            Some(&Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn mark(&self, ahead: usize) -> Option<char> {
        match self.tokens.get(self.at + ahead) {
            Some(&Token::Mark(mark)) => Some(mark),
            _ => None,
        }
    }

    fn is_attribute(&self) -> bool {
        self.mark(1) == Some('[') || (self.mark(1) == Some('!') && self.mark(2) == Some('['))
    }

    /// Reads an attribute, and skips the item after it if that is for tests only.
    fn read_attribute(&mut self, module: &mut Module) {
        let open = self.at + if self.mark(1) == Some('[') { 1 } else { 2 };
        let end = self.closing(open);
        let inner = &self.tokens[open + 1..end];
        self.at = end + 1;
        if is_for_tests(inner) {
            return self.skip_item();
        }
        // Names of functions are quoted there, as in `serde(with = "crate::seconds")`.
        for token in inner {
            if let Token::Text(text) = token {
                module.paths.append(&mut parse(text.trim_matches('"')).paths);
            }
        }
    }

    /// Returns the index of the bracket that closes the one at `open`.
    fn closing(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for (at, token) in self.tokens.iter().enumerate().skip(open) {
            match token {
                Token::Mark('{' | '(' | '[') => depth += 1,
                Token::Mark('}' | ')' | ']') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return at;
            }
        }
        self.tokens.len() - 1
    }

    /// Skips the next item, field or arm.
    fn skip_item(&mut self) {
        while self.mark(0) == Some('#') && self.is_attribute() {
            self.at = self.closing(self.at + 1) + 1;
        }
        let is_item = self.word(0).is_some_and(|word| OPENINGS.contains(&word));
        let is_use = self.word(0) == Some("use")
            || (self.word(0) == Some("pub") && self.tokens[self.at..].iter().take(5).any(is_use));
        while let Some(token) = self.tokens.get(self.at) {
            match token {
                Token::Mark(';') => return self.at += 1,
                Token::Mark(',') if !is_item && !is_use => return self.at += 1,
                Token::Mark('}' | ')' | ']') => return,
                Token::Mark('{') if !is_use => {
                    return self.at = self.closing(self.at) + 1;
                }
                Token::Mark('{' | '(' | '[') => self.at = self.closing(self.at) + 1,
                _ => self.at += 1,
            }
        }
    }

    fn read_use(&mut self, module: &mut Module) {
        // A bracket right before `use` ends its visibility, as in `pub(crate) use`.
        let before = self.at.checked_sub(1).map(|at| self.tokens[at]);
        let is_public = matches!(before, Some(Token::Word("pub") | Token::Mark(')')));
        self.at += 1;
        self.read_use_tree(&[], is_public, &mut module.imports);
        self.at += 1;
    }

    /// Reads one path of a `use`, or all in its braces, up to the mark after it.
    fn read_use_tree(&mut self, above: &[String], is_public: bool, imports: &mut Vec<Import>) {
        let mut path = above.to_vec();
        let mut name = None;
        while let Some(&token) = self.tokens.get(self.at) {
            match token {
                Token::Word("as") => {
                    name = self.word(1).map(str::to_owned);
                    self.at += 2;
                }
                Token::Word(word) => {
                    path.push(word.to_owned());
                    self.at += 1;
                }
                Token::Mark('*') => {
                    self.at += 1;
                    return imports.push(Import { path, name: None, is_public });
                }
                Token::Mark('{') => {
                    while self.mark(0) != Some('}') && self.at < self.tokens.len() {
                        self.at += 1;
                        self.read_use_tree(&path, is_public, imports);
                    }
                    return self.at += 1;
                }
                Token::Mark(',' | '}' | ';') => break,
                Token::Colons | Token::Mark(_) | Token::Text(_) => self.at += 1,
            }
        }
        if path.len() > above.len() {
            path.pop_if(|last| last == "self");
            let name = name.or_else(|| path.last().cloned());
            imports.push(Import { path, name, is_public });
        }
    }

    fn read_mod(&mut self, module: &mut Module) {
        let name = self.word(1).unwrap_or_default().to_owned();
        match self.mark(2) {
            Some(';') => {
                module.declared.push(name);
                self.at += 3;
            }
            Some('{') => {
                let end = self.closing(self.at + 2);
                let mut inner = Module::default();
                let tokens = &self.tokens[self.at + 3..end];
                Reader { tokens, at: 0, depth: 0 }.read(&mut inner);
                module.inline.push((name, inner));
                self.at = end + 1;
            }
            _ => self.at += 1,
        }
    }

    /// Reads the name of an item, or a path.
    fn read_word(&mut self, word: &str, module: &mut Module) {
        if word == "macro_rules" && self.mark(1) == Some('!') {
            module.items.extend(self.word(2).map(str::to_owned));
            self.at += 3;
            return;
        }
        if ITEMS.contains(&word)
            && let Some(name) = self.word(1)
            && !ITEMS.contains(&name)
        {
            if self.depth == 0 {
                module.items.push(name.to_owned());
            }
            self.at += 2;
            return;
        }
        let is_head = !matches!(
            self.at.checked_sub(1).map(|at| self.tokens[at]),
            Some(Token::Colons | Token::Mark('.'))
        );
        let mut path = vec![word.to_owned()];
        self.at += 1;
        while self.tokens.get(self.at) == Some(&Token::Colons)
            && let Some(next) = self.word(1)
        {
            path.push(next.to_owned());
            self.at += 2;
        }
        // A small word alone may be a variable with the name of a function, unless it is called.
        let is_called = matches!(self.mark(0), Some('(' | '!'));
        let is_type = word.starts_with(char::is_uppercase);
        if is_head && (path.len() > 1 || is_called || is_type) {
            module.paths.push(path);
        }
    }
}

fn is_use(token: &Token<'_>) -> bool {
    *token == Token::Word("use")
}

/// Returns true if `attribute` is a `cfg` that names `test`, but not `not(test)`.
fn is_for_tests(attribute: &[Token<'_>]) -> bool {
    let is_negated = |at: usize| at >= 2 && attribute[at - 2] == Token::Word("not");
    attribute.first() == Some(&Token::Word("cfg"))
        && attribute
            .iter()
            .enumerate()
            .any(|(at, token)| *token == Token::Word("test") && !is_negated(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(text: &str) -> Vec<String> {
        let show = |import: &Import| {
            let end =
                import.name.as_ref().map_or_else(|| "*".to_owned(), |name| format!("as {name}"));
            format!("{} {end}", import.path.join("::"))
        };
        parse(text).imports.iter().map(show).collect()
    }

    fn paths(text: &str) -> Vec<String> {
        parse(text).paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn each_name_of_a_use_is_an_import() {
        let text = "use crate::{a::{self, B as C}, d, e::*,}; use f;";
        let expected =
            ["crate::a as a", "crate::a::B as C", "crate::d as d", "crate::e *", "f as f"];
        assert_eq!(imports(text), expected);
    }

    #[test]
    fn an_import_that_is_passed_on_is_public() {
        let text = "use a::A; pub use b::B; pub(crate) use c::C; pub(in crate::x) use d::D;";
        let public: Vec<bool> = parse(text).imports.iter().map(|it| it.is_public).collect();
        assert_eq!(public, [false, true, true, true]);
    }

    #[test]
    fn items_are_those_of_the_module_itself() {
        let text = "pub const fn a() { fn b() {} } impl C { const D: u8 = 1; } macro_rules! e {}";
        assert_eq!(parse(text).items, ["a", "e"]);
    }

    #[test]
    fn what_belongs_to_tests_is_not_read() {
        assert_eq!(paths("#[cfg(test)] fn a<B, C>() { x::y } fn d() { e::f }"), ["e::f"]);
        assert_eq!(paths("#[cfg(any(test, fuzzing))] #[cold] impl A { x::y } e::f"), ["e::f"]);
        assert_eq!(paths("S { #[cfg(test)] a: x::y, b: e::f }"), ["S", "e::f"]);
        assert_eq!(paths("#[cfg(not(test))] fn a() { x::y }"), ["x::y"]);
        assert_eq!(imports("#[cfg(test)] use a::{b, c}; use d::e;"), ["d::e as e"]);
        assert_eq!(imports("#[cfg(test)] pub(crate) use a::{b}; use d::e;"), ["d::e as e"]);
        assert_eq!(parse("#[cfg(test)] #[path = \"b\"] mod a; mod c;").declared, ["c"]);
    }

    #[test]
    fn paths_are_found_in_code_and_in_attributes() {
        assert_eq!(paths("fn f(g: &a::B) -> Option<C> { ::d::e(); h.i::<J>(); k() }")[0], "a::B");
        assert_eq!(paths("::d::e(h.i, k(l))"), ["k"]);
        assert_eq!(paths("#[serde(with = \"crate::seconds\")]"), ["crate::seconds"]);
    }

    #[test]
    fn a_module_in_braces_is_a_module() {
        let module = parse("mod a { use super::B; } mod c;");
        assert_eq!(module.inline[0].0, "a");
        assert_eq!(module.inline[0].1.imports.len(), 1);
        assert_eq!((module.imports.len(), module.declared.len()), (0, 1));
    }
}
