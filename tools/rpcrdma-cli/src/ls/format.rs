//! How `ls` shows entries to people: in long lines, one per line, or in columns.

use super::columns::{Align, table};
use super::{Entry, LsArgs, When};
use crate::owners::Owners;
use crate::show::{self, Units};
use crate::times::{Clock, TimeStyle};
use lscolors::{Indicator, LsColors};
use nfs_client::printable;
use nfs_proto::{Attributes, FileType};
use printing::table::terminal_width;
use std::io::{self, IsTerminal};
use term_grid::{Direction, Filling, Grid, GridOptions};

/// Columns of an output whose width is not known.
const USUAL_WIDTH: usize = 80;

/// Listing to which entries belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// To nothing: the user named each of them.
    Named,
    /// To one directory.
    Directory,
}

/// Layout of names that are shown alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    OnePerLine,
    /// In columns, on an output of this width.
    Columns(usize),
}

/// How entries are shown.
pub(super) struct Format<'a> {
    args: &'a LsArgs,
    clock: Clock,
    style: TimeStyle,
    colors: Option<LsColors>,
    layout: Layout,
}

impl<'a> Format<'a> {
    pub(super) fn new(args: &'a LsArgs) -> Self {
        let terminal = io::stdout().is_terminal();
        let colored = match args.color {
            When::Always => true,
            When::Auto => terminal,
            When::Never => false,
        };
        let style = match (&args.time_style, args.full_time) {
            (Some(style), _) => style.clone(),
            (None, true) => TimeStyle::FullIso,
            (None, false) => TimeStyle::Locale,
        };
        let layout = match args.columns || terminal && !args.one_per_line {
            true => Layout::Columns(width(args.width)),
            false => Layout::OnePerLine,
        };
        Self {
            args,
            clock: Clock::system(),
            style,
            colors: colored.then(|| LsColors::from_env().unwrap_or_default()),
            layout,
        }
    }

    pub(super) fn has_colors(&self) -> bool {
        self.colors.is_some()
    }

    /// The entries as text.
    pub(super) fn text(&self, entries: &[Entry], listing: Listing, owners: &Owners) -> String {
        if self.args.is_long() {
            return self.long(entries, listing, owners);
        }
        let numbers: Vec<String> = match self.args.inode {
            true => entries.iter().map(number).collect(),
            false => Vec::new(),
        };
        let width = numbers.iter().map(String::len).max().unwrap_or(0);
        let names = entries.iter().enumerate().map(|(index, entry)| {
            let name = self.name(entry);
            match numbers.get(index) {
                Some(number) => format!("{number:>width$} {name}"),
                None => name,
            }
        });
        match self.layout {
            Layout::OnePerLine => names.map(|name| name + "\n").collect(),
            Layout::Columns(width) => {
                let options = GridOptions {
                    direction: Direction::TopToBottom,
                    filling: Filling::Spaces(2),
                    width,
                };
                match entries.is_empty() {
                    true => String::new(),
                    false => Grid::new(names.collect(), options).to_string(),
                }
            }
        }
    }

    fn long(&self, entries: &[Entry], listing: Listing, owners: &Owners) -> String {
        let rows: Vec<Vec<String>> = entries.iter().map(|e| self.row(e, owners)).collect();
        let mut columns = vec![
            Align::Left,
            Align::Right,
            Align::Left,
            Align::Left,
            Align::Right,
            Align::Right,
            Align::Left,
        ];
        if self.args.inode {
            columns.insert(0, Align::Right);
        }
        let total = match listing {
            Listing::Named => String::new(),
            Listing::Directory => {
                let nodes = entries.iter().filter_map(|entry| entry.node);
                let used = nodes.fold(0, |sum: u64, node| sum.saturating_add(node.attributes.used));
                format!("total {}\n", self.size(used, Some(1024)))
            }
        };
        total + &table(&rows, &columns, 1)
    }

    /// A size: as the user wants it, or else in these blocks, or else in bytes.
    fn size(&self, bytes: u64, block: Option<u64>) -> String {
        match Units::wanted(self.args.human_readable, self.args.si) {
            Some(units) => show::size_in(bytes, units),
            None => bytes.div_ceil(block.unwrap_or(1)).to_string(),
        }
    }

    fn row(&self, entry: &Entry, owners: &Owners) -> Vec<String> {
        let mut row = Vec::with_capacity(8);
        if self.args.inode {
            row.push(number(entry));
        }
        match &entry.node {
            Some(node) => {
                let attributes = &node.attributes;
                let device = attributes.device;
                row.extend([
                    show::mode(attributes),
                    attributes.links.to_string(),
                    owners.user(attributes.uid),
                    owners.group(attributes.gid),
                    match attributes.file_type {
                        FileType::Block | FileType::Character => {
                            format!("{}, {}", device.major, device.minor)
                        }
                        _ => self.size(attributes.size, None),
                    },
                    self.clock.styled(self.args.time(attributes), &self.style),
                ]);
            }
            None => row.extend(["??????????", "?", "?", "?", "?", "?"].map(str::to_owned)),
        }
        let mut name = self.name(entry);
        if let Some(target) = &entry.target {
            let shown = printable(target);
            name += " -> ";
            name += &match &entry.leads_to {
                Some(attributes) => self.colored(&shown, Some(attributes)) + self.mark(attributes),
                None => shown,
            };
        }
        row.push(name);
        row
    }

    /// A name with its colour, and with the mark of its type if that is wanted.
    fn name(&self, entry: &Entry) -> String {
        let attributes = entry.node.as_ref().map(|node| &node.attributes);
        let name = self.colored(&printable(&entry.name), attributes);
        match attributes {
            // What follows the name of the link is what it leads to.
            Some(_) if entry.target.is_some() => name,
            Some(attributes) => name + self.mark(attributes),
            None => name,
        }
    }

    fn mark(&self, attributes: &Attributes) -> &'static str {
        if !self.args.classify {
            return "";
        }
        match attributes.file_type {
            FileType::Directory => "/",
            FileType::Symlink => "@",
            FileType::Fifo => "|",
            FileType::Socket => "=",
            FileType::Regular if attributes.mode & 0o111 != 0 => "*",
            FileType::Regular | FileType::Block | FileType::Character => "",
        }
    }

    fn colored(&self, name: &str, attributes: Option<&Attributes>) -> String {
        let style = self.colors.as_ref().and_then(|colors| {
            let kind = attributes.map_or(Indicator::MissingFile, indicator);
            let by_name = match kind {
                Indicator::RegularFile => colors.style_for_str(name),
                _ => None,
            };
            by_name.or_else(|| colors.style_for_indicator(kind))
        });
        match style {
            Some(style) => style.to_nu_ansi_term_style().paint(name).to_string(),
            None => name.to_owned(),
        }
    }
}

/// Kind of a file in LS_COLORS.
fn indicator(attributes: &Attributes) -> Indicator {
    let has = |bits| attributes.mode & bits != 0;
    match attributes.file_type {
        FileType::Directory => match (has(0o1000), has(0o002)) {
            (true, true) => Indicator::StickyAndOtherWritable,
            (true, false) => Indicator::Sticky,
            (false, true) => Indicator::OtherWritable,
            (false, false) => Indicator::Directory,
        },
        FileType::Symlink => Indicator::SymbolicLink,
        FileType::Fifo => Indicator::FIFO,
        FileType::Socket => Indicator::Socket,
        FileType::Block => Indicator::BlockDevice,
        FileType::Character => Indicator::CharacterDevice,
        FileType::Regular if has(0o4000) => Indicator::Setuid,
        FileType::Regular if has(0o2000) => Indicator::Setgid,
        FileType::Regular if has(0o111) => Indicator::ExecutableFile,
        FileType::Regular => Indicator::RegularFile,
    }
}

/// The number of a file.
fn number(entry: &Entry) -> String {
    match &entry.node {
        Some(node) => node.attributes.file_id.0.to_string(),
        None => "?".to_owned(),
    }
}

/// Columns of the output: those that the user says, or `COLUMNS`, or the terminal has.
fn width(given: Option<u16>) -> usize {
    let environment = || std::env::var("COLUMNS").ok()?.parse().ok();
    match given.or_else(environment).or_else(terminal_width) {
        Some(0) => usize::MAX,
        Some(width) => width.into(),
        None => USUAL_WIDTH,
    }
}
