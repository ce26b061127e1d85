//! Modes as chmod(1) understands them: in octal, or as changes such as `u+rwx,go=rX`.

use std::str::FromStr;

/// Permission bits, set-user-ID, set-group-ID and sticky: all that a mode consists of.
const ALL: u32 = 0o7777;

/// Set-user-ID and set-group-ID: a directory keeps them unless they are named.
const SET_IDS: u32 = 0o6000;

/// Changes of one mode at most, so that nobody waits for them.
const MAX_CHANGES: usize = 1000;

/// A mode, or a list of changes of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModeChange(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// A mode in octal. With five digits or more it also takes set-user-ID and set-group-ID from
    /// directories.
    Octal {
        mode: u32,
        takes_set_ids: bool,
    },
    Symbolic(Vec<Clause>),
}

/// A part of a symbolic mode: one operation for some classes of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clause {
    /// The bits of those classes; none if no class was named, which means all but what the umask keeps.
    classes: Option<u32>,
    operation: Operation,
    permissions: Permissions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permissions {
    /// These bits, of each class, and execution where somebody has it already if `search` is set.
    Bits { bits: u32, search: bool },
    /// Those that the class has now whose bits are `shift` places from the right.
    CopyOf { shift: u32 },
}

impl ModeChange {
    /// The mode that a file, or a directory, gets whose mode is this.
    pub(crate) fn apply(&self, mode: u32, directory: bool, umask: u32) -> u32 {
        let mode = mode & ALL;
        match &self.0 {
            Kind::Octal {
                mode: new,
                takes_set_ids,
            } => match directory && !takes_set_ids {
                true => new | mode & SET_IDS,
                false => *new,
            },
            Kind::Symbolic(clauses) => clauses
                .iter()
                .fold(mode, |mode, clause| clause.apply(mode, directory, umask)),
        }
    }

    /// Whether it may be a different one for each file.
    #[cfg(test)]
    fn is_symbolic(&self) -> bool {
        matches!(self.0, Kind::Symbolic(_))
    }
}

impl Clause {
    fn apply(self, mode: u32, directory: bool, umask: u32) -> u32 {
        let value = match self.permissions {
            Permissions::Bits { bits, search } => {
                let searched = search && (directory || mode & 0o111 != 0);
                bits | if searched { 0o111 } else { 0 }
            }
            Permissions::CopyOf { shift } => (mode >> shift & 0o7) * 0o111,
        };
        // Without classes, set-user-ID and set-group-ID are meant too, which no umask has.
        let classes = self.classes.unwrap_or(ALL & !umask);
        let value = value & classes;
        // Of the permissions that are set, a directory keeps what was not named.
        let kept = match (directory, self.permissions) {
            (true, Permissions::Bits { bits, .. }) => SET_IDS & !(bits & classes),
            (true, Permissions::CopyOf { .. }) => SET_IDS,
            (false, _) => 0,
        };
        match self.operation {
            Operation::Add => mode | value,
            Operation::Remove => mode & !value,
            Operation::Set => {
                // No class at all is all of them: what the umask keeps is taken away.
                let cleared = self.classes.unwrap_or(ALL) & !kept;
                mode & !cleared | value
            }
        }
    }
}

impl FromStr for ModeChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let mode = u32::from_str_radix(text, 8)
                .ok()
                .filter(|mode| *mode <= ALL);
            let mode = mode.ok_or("it is not a mode in octal up to 7777")?;
            let takes_set_ids = text.len() > 4;
            return Ok(Self(Kind::Octal {
                mode,
                takes_set_ids,
            }));
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            parse_part(part, &mut clauses)
                .ok_or("it is not a mode: give octal digits, or changes such as u+rwx,go=rX")?;
            if clauses.len() > MAX_CHANGES {
                return Err("it has too many changes".to_owned());
            }
        }
        Ok(Self(Kind::Symbolic(clauses)))
    }
}

/// Parses `[ugoa]*([-+=]([rwxXst]*|[ugo]))+`.
fn parse_part(part: &str, clauses: &mut Vec<Clause>) -> Option<()> {
    let first = part.find(['+', '-', '='])?;
    let (classes, mut rest) = part.split_at(first);
    let mut named = None;
    for class in classes.chars() {
        let bits = match class {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => ALL,
            _ => return None,
        };
        named = Some(named.unwrap_or(0) | bits);
    }
    while let Some(operation) = rest.chars().next() {
        let operation = match operation {
            '+' => Operation::Add,
            '-' => Operation::Remove,
            '=' => Operation::Set,
            _ => return None,
        };
        let end = rest[1..]
            .find(['+', '-', '='])
            .map_or(rest.len(), |at| at + 1);
        clauses.push(Clause {
            classes: named,
            operation,
            permissions: parse_permissions(&rest[1..end])?,
        });
        rest = &rest[end..];
    }
    Some(())
}

fn parse_permissions(text: &str) -> Option<Permissions> {
    match text {
        "u" => return Some(Permissions::CopyOf { shift: 6 }),
        "g" => return Some(Permissions::CopyOf { shift: 3 }),
        "o" => return Some(Permissions::CopyOf { shift: 0 }),
        _ => {}
    }
    let (mut bits, mut search) = (0, false);
    for letter in text.chars() {
        match letter {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= 0o111,
            'X' => search = true,
            's' => bits |= SET_IDS,
            't' => bits |= 0o1000,
            _ => return None,
        }
    }
    Some(Permissions::Bits { bits, search })
}

/// The umask of this process. It can only be read by setting it: for that moment it leaves least.
pub(crate) fn umask() -> u32 {
    use rustix::fs::Mode;
    let umask = rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::umask(umask);
    umask.as_raw_mode()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::process::Command;

    const MODES: [&str; 44] = [
        "0",
        "644",
        "7777",
        "4755",
        "00755",
        "u+x",
        "u-x",
        "g=r",
        "o=",
        "a+rwx",
        "+x",
        "-w",
        "=r",
        "+rwxs",
        "=",
        "u+s",
        "g+s",
        "g-s",
        "u-s",
        "ug+s",
        "o+s",
        "+t",
        "o+t",
        "u+t",
        "a-t",
        "a=t",
        "+X",
        "a+X",
        "u=rwX,go=rX",
        "g=u",
        "o=g",
        "u=o",
        "o+u",
        "g-u",
        "u+r-w+x",
        "u+r,u-r",
        "go=",
        "ug=rw,o=r",
        "a=s",
        "u=s",
        "g=s",
        "=s",
        "=rw",
        "-rwx",
    ];

    /// coreutils decide what is right, for files and directories of several modes.
    #[test]
    fn modes_are_changed_as_chmod_does() {
        let dir = tempfile::tempdir().unwrap();
        let umask = umask();
        let mut seen = 0;
        for directory in [false, true] {
            let path = dir
                .path()
                .join(if directory { "directory" } else { "file" });
            match directory {
                true => fs::create_dir(&path).unwrap(),
                false => fs::write(&path, "").unwrap(),
            }
            for before in [0o000, 0o644, 0o751, 0o7777, 0o6711, 0o1070] {
                for text in MODES {
                    fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
                    let done = Command::new("chmod").args(["--", text]).arg(&path).output();
                    // With -w and the like it fails if the umask keeps something, and changes the mode.
                    drop(done.unwrap());
                    let theirs = fs::metadata(&path).unwrap().mode() & ALL;
                    let change: ModeChange = text.parse().unwrap();
                    let ours = change.apply(before, directory, umask);
                    let what = if directory { "directory" } else { "file" };
                    assert_eq!(
                        format!("{ours:o}"),
                        format!("{theirs:o}"),
                        "{text} of a {what} with {before:o}"
                    );
                    seen += 1;
                }
            }
            fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        }
        assert_eq!(seen, 2 * 6 * MODES.len());
    }

    #[test]
    fn modes_that_are_none_are_refused() {
        for bad in [
            "", "8", "10000", "u", "x", "z+r", "u+q", "u+ug", "u+r,", "+r,z", "0x7", "u r",
        ] {
            assert!(bad.parse::<ModeChange>().is_err(), "{bad}");
        }
        let long = vec!["u+r"; MAX_CHANGES + 1].join(",");
        assert!(long.parse::<ModeChange>().is_err());
        let long = vec!["u+r"; MAX_CHANGES].join(",");
        assert!(long.parse::<ModeChange>().unwrap().is_symbolic());
    }
}
