//! Facts that a client was told, and that are looked for on the disk.
//!
//! A mark of the log is `OPERATION;FACT;FACT`, a fact `WHAT,PATH` or `WHAT,PATH,VALUE`:
//!
//! | fact | says |
//! |---|---|
//! | `file`, `dir`, `fifo` | such a thing has this name |
//! | `link` | a symbolic link with this text |
//! | `gone` | nothing has this name |
//! | `mode`, `names`, `size`, `sum` | permissions in octal, names, bytes, SHA-256 of a file |
//! | `times` | times of the last change of data, and of attributes, of a file: `MTIME/CTIME` |
//! | `?` | the next operation undoes what was said of this name |
//!
//! Facts of the latest mark replace older ones of the same kind and name.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

/// All that holds at a point of the log, by name and kind of fact.
#[derive(Default)]
pub(super) struct Facts<'a>(BTreeMap<(&'a str, &'a str), Fact<'a>>);

struct Fact<'a> {
    /// Operation by which it became true.
    operation: &'a str,
    what: &'a str,
    value: &'a str,
}

impl<'a> Facts<'a> {
    /// Takes in a mark.
    ///
    /// # Errors
    ///
    /// It is none that a client makes.
    pub(super) fn add(&mut self, mark: &'a str) -> Result<()> {
        let mut parts = mark.split(';');
        let operation = parts.next().unwrap_or_default();
        for fact in parts {
            let (what, rest) = fact.split_once(',').with_context(|| mark.to_owned())?;
            let (path, value) = rest.split_once(',').unwrap_or((rest, ""));
            let kind = match what {
                "file" | "dir" | "fifo" | "link" | "gone" => "name",
                "mode" | "names" | "size" | "sum" | "times" => what,
                "?" => {
                    self.0.retain(|(of, _), _| *of != path);
                    continue;
                }
                _ => bail!("no such fact: {mark}"),
            };
            let fact = Fact {
                operation,
                what,
                value,
            };
            self.0.insert((path, kind), fact);
        }
        Ok(())
    }

    /// Those that are not true, with what is there instead.
    pub(super) fn missing(&self, listing: &Listing) -> Vec<String> {
        let broken = self.0.iter().filter_map(|((path, _), fact)| {
            let found = listing.value(path, fact.what);
            let expected = match fact.what {
                "gone" => found == "nothing",
                "file" | "dir" | "fifo" => found == fact.what,
                _ => found == fact.value,
            };
            let Fact {
                operation,
                what,
                value,
            } = fact;
            (!expected).then(|| format!("{operation}: {path}: {what} {value}, found {found}"))
        });
        broken.collect()
    }
}

/// Content of a disk.
#[derive(Default)]
pub(super) struct Listing(BTreeMap<String, Entry>);

#[derive(Default)]
struct Entry {
    kind: String,
    mode: String,
    names: String,
    size: String,
    times: String,
    text: String,
    sum: String,
}

impl Listing {
    /// Reads the lines `entry,KIND,MODE,NAMES,SIZE,TIMES,PATH,TEXT` and `sum,SHA256,PATH` of a guest.
    ///
    /// # Errors
    ///
    /// A line is of another form.
    pub(super) fn read(lines: &[String]) -> Result<Self> {
        let mut listing = Self::default();
        for line in lines {
            let fields: Vec<_> = line.split(',').collect();
            match fields[..] {
                ["entry", kind, mode, names, size, times, path, text] => {
                    let entry = listing.0.entry(path.into()).or_default();
                    for (field, value) in [
                        (&mut entry.kind, kind),
                        (&mut entry.mode, mode),
                        (&mut entry.names, names),
                        (&mut entry.size, size),
                        (&mut entry.times, times),
                        (&mut entry.text, text),
                    ] {
                        value.clone_into(field);
                    }
                }
                ["sum", sum, path] => {
                    sum.clone_into(&mut listing.0.entry(path.into()).or_default().sum);
                }
                _ => bail!("the guest lists {line:?}"),
            }
        }
        Ok(listing)
    }

    /// Names that were found.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn value(&self, path: &str, what: &str) -> &str {
        let Some(entry) = self.0.get(path) else {
            return "nothing";
        };
        match what {
            "mode" => &entry.mode,
            "names" => &entry.names,
            "size" => &entry.size,
            "times" => &entry.times,
            "sum" => &entry.sum,
            "link" if entry.kind == "l" => &entry.text,
            _ => match &*entry.kind {
                "f" => "file",
                "d" => "dir",
                "p" => "fifo",
                "l" => "link",
                other => other,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(marks: &[&str]) -> usize {
        let lines = [
            "entry,f,600,2,5,1.5/2.5,a,",
            "entry,d,755,2,4096,1.5/2.5,d,",
            "entry,p,644,1,0,1.5/2.5,p,",
            "entry,l,777,1,4,1.5/2.5,l,text",
            "sum,cafe,a",
        ];
        let listing = Listing::read(&lines.map(str::to_owned)).unwrap();
        assert_eq!(listing.len(), 4);
        let mut facts = Facts::default();
        for mark in marks {
            facts.add(mark).unwrap();
        }
        facts.missing(&listing).len()
    }

    #[test]
    fn facts_are_compared_with_what_is_found() {
        let true_ones = [
            "CREATE;file,a",
            "MKDIR;dir,d",
            "MKNOD;fifo,p",
            "SYMLINK;link,l,text",
            "RENAME;gone,x;file,a",
            "SETATTR;mode,a,600;size,a,5",
            "LINK;names,a,2",
            "COMMIT;sum,a,cafe;times,a,1.5/2.5",
        ];
        assert_eq!(missing(&true_ones), 0);
        for wrong in [
            "CREATE;file,x",
            "CREATE;file,d",
            "MKDIR;dir,a",
            "MKNOD;fifo,a",
            "SYMLINK;link,l,other",
            "SYMLINK;link,a,text",
            "REMOVE;gone,a",
            "SETATTR;mode,a,644",
            "SETATTR;size,a,0",
            "LINK;names,x,2",
            "COMMIT;sum,a,",
            "COMMIT;times,a,1.5/2.0",
        ] {
            assert_eq!(missing(&[wrong]), 1, "{wrong}");
        }
        assert_eq!(missing(&["RENAME;gone,a;file,x"]), 2);
    }

    #[test]
    fn later_facts_replace_earlier_ones() {
        assert_eq!(missing(&["CREATE;file,x", "REMOVE;gone,x"]), 0);
        assert_eq!(missing(&["CREATE;file,x", "next;?,x"]), 0);
        assert_eq!(missing(&["SETATTR;size,a,5", "COMMIT;size,a,6"]), 1);
        assert_eq!(missing(&["CREATE;file,x", "SETATTR;mode,a,600"]), 1);
    }

    #[test]
    fn what_is_no_mark_and_no_listing_is_refused() {
        assert!(Facts::default().add("CREATE;file").is_err());
        assert!(Facts::default().add("CREATE;flie,a").is_err());
        assert!(Facts::default().add("begin").is_ok());
        assert!(Listing::read(&["entry,f,600".into()]).is_err());
    }
}
