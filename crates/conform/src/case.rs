//! Cases: code, rule, section, level, and the function that tests it.

use crate::bed::Bed;
use crate::requester::stage::Stage;
use crate::verdict::{Level, Tested};

/// One numbered case.
pub struct Case {
    /// Stable code, such as `HDR-02`. A code is never used for something else.
    pub code: &'static str,
    /// The rule, in a sentence.
    pub title: &'static str,
    /// Sections of the text that has the rule.
    pub section: &'static str,
    /// Requirement level.
    pub level: Level,
    pub(crate) test: Test,
}

/// The code of a case.
pub(crate) enum Test {
    /// Against a Responder.
    Responder(fn(&Bed) -> Tested),
    /// Against a Requester.
    Requester(fn(&Stage) -> Tested),
}

impl Case {
    pub(crate) const fn responder(
        code: &'static str,
        level: Level,
        section: &'static str,
        title: &'static str,
        test: fn(&Bed) -> Tested,
    ) -> Self {
        let test = Test::Responder(test);
        Self {
            code,
            title,
            section,
            level,
            test,
        }
    }

    pub(crate) const fn requester(
        code: &'static str,
        level: Level,
        section: &'static str,
        title: &'static str,
        test: fn(&Stage) -> Tested,
    ) -> Self {
        let test = Test::Requester(test);
        Self {
            code,
            title,
            section,
            level,
            test,
        }
    }

    /// The part of the code before its number, which names what the case is about.
    pub fn area(&self) -> &'static str {
        self.code
            .rsplit_once('-')
            .map_or(self.code, |(area, _)| area)
    }

    /// Whether one of the patterns selects the case.
    pub(crate) fn is_one_of(&self, patterns: &[String]) -> bool {
        patterns.iter().any(|pattern| self.is_selected_by(pattern))
    }

    /// Whether a pattern selects the case: a code, or the beginning of one with `*` behind it, in any case of letters.
    pub fn is_selected_by(&self, pattern: &str) -> bool {
        match pattern.strip_suffix('*') {
            Some(begin) => {
                let begin = begin.to_ascii_uppercase();
                self.code.starts_with(&begin)
            }
            None => self.code.eq_ignore_ascii_case(pattern),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Level;

    #[test]
    fn patterns_select_by_code_and_by_its_beginning() {
        let case = Case::responder("HDR-02", Level::Must, "", "", |_| Ok(()));
        for (pattern, selected) in [
            ("HDR-02", true),
            ("hdr-02", true),
            ("HDR-*", true),
            ("*", true),
            ("HDR", false),
            ("HDR-0", false),
            ("MPA-*", false),
        ] {
            assert_eq!(case.is_selected_by(pattern), selected, "{pattern}");
        }
        assert_eq!(case.area(), "HDR");
    }
}
