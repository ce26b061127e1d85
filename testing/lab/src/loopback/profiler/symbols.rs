//! Layers of samples, by the debug information of the program.

use super::image::Image;
use super::layer::{Frame, Layer, Module, layer};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use syscalls::{Sample, memory_functions};

/// Samples of each layer.
pub(crate) type Tally = BTreeMap<Layer, u64>;

/// Bytes of the longest function of a C library that copies memory, and more.
const LONGEST_MEMORY_FUNCTION: usize = 2048;

/// Looks up the layers of samples, and remembers them.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    known: HashMap<usize, Layer>,
}

impl Symbols {
    pub(super) fn tally(&mut self, samples: &[Sample]) -> Tally {
        self.look_up(samples.iter().map(|sample| sample.address));
        let mut tally = Tally::new();
        for sample in samples {
            *tally.entry(self.layer(*sample)).or_default() += 1;
        }
        tally
    }

    fn layer(&self, sample: Sample) -> Layer {
        // A look at a socket that has nothing.
        let nothing = i32::try_from(sample.result) == Ok(-Errno::AGAIN.raw_os_error());
        match self.known.get(&sample.address) {
            Some(Layer::KernelRead) if nothing => Layer::Waiting,
            Some(&layer) => layer,
            None => Layer::Unknown,
        }
    }

    /// Gets to know these addresses. Files are read again if there are unknown ones among them, and not
    /// kept: there are few after the first time.
    fn look_up(&mut self, addresses: impl Iterator<Item = usize>) {
        let unknown: BTreeSet<usize> = addresses
            .filter(|at| !self.known.contains_key(at))
            .collect();
        if unknown.is_empty() {
            return;
        }
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let mappings = mappings(&maps);
        let mut files: BTreeMap<&str, Vec<(usize, &Mapping<'_>)>> = BTreeMap::new();
        for address in unknown {
            let mut around = mappings
                .iter()
                .filter(|mapping| mapping.range.contains(&address));
            if let Some(mapping) = around.next() {
                files
                    .entry(mapping.path)
                    .or_default()
                    .push((address, mapping));
            }
        }
        let program = mappings
            .iter()
            .find(|mapping| mapping.range.contains(&here()))
            .map(|mapping| mapping.path);
        for (path, addresses) in files {
            // What is no file, or has no debug information, has no functions.
            let file = file(path, program);
            let data = file.and_then(|file| std::fs::read(file).ok());
            let data = data.unwrap_or_default();
            let image = Image::parse(&data);
            for (address, mapping) in addresses {
                let functions = |address| match &image {
                    Some(image) => image.functions(mapping.offset_of(address)),
                    None => Vec::new(),
                };
                let found = layer_at(address, mapping.module_at(address), functions);
                self.known.insert(address, found);
            }
        }
    }
}

/// Whether the source lines of this program are known, and with them its inlined functions. The names of
/// its other functions alone would give their samples to the wrong layers.
pub(super) fn has_debug_information() -> bool {
    std::fs::read(PROGRAM).is_ok_and(|data| has_lines(&data).unwrap_or(false))
}

/// Whether the file of this program has source lines.
fn has_lines(data: &[u8]) -> Option<bool> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let mappings = mappings(&maps);
    let mapping = mappings
        .iter()
        .find(|mapping| mapping.range.contains(&here()))?;
    let functions = Image::parse(data)?.functions(mapping.offset_of(here()));
    Some(functions.iter().any(|frame| !frame.file.is_empty()))
}

/// The file of this program, also when it was replaced or removed since it was started.
const PROGRAM: &str = "/proc/self/exe";

/// A place in this program.
fn here() -> usize {
    Symbols::tally as *const () as usize
}

/// File in which to read what is mapped from this path.
fn file<'a>(path: &'a str, program: Option<&str>) -> Option<&'a str> {
    match path {
        _ if program == Some(path) => Some(PROGRAM),
        _ => path.starts_with('/').then_some(path),
    }
}

/// The layer of an address, by the functions at addresses of its mapping.
fn layer_at(address: usize, module: Module, functions: impl Fn(usize) -> Vec<Frame>) -> Layer {
    // A thread in the kernel is behind the instruction that is its system call, where another function
    // may begin.
    match layer(&functions(address.saturating_sub(1)), module) {
        kernel @ (Layer::KernelRead
        | Layer::KernelWrite
        | Layer::KernelEpoll
        | Layer::KernelOther) => kernel,
        _ => layer(&functions(address), module),
    }
}

/// A part of the address space.
#[derive(Debug, PartialEq, Eq)]
struct Mapping<'a> {
    range: Range<usize>,
    /// Offset in its file.
    offset: u64,
    path: &'a str,
}

impl Mapping<'_> {
    fn offset_of(&self, address: usize) -> u64 {
        (address.saturating_sub(self.range.start) as u64).saturating_add(self.offset)
    }

    fn module_at(&self, address: usize) -> Module {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let copies = memory_functions()
            .iter()
            .any(|&begin| (begin..begin + LONGEST_MEMORY_FUNCTION).contains(&address));
        match name {
            "[vdso]" => Module::Vdso,
            _ if !name.starts_with("libc.") && !name.starts_with("libc-") => Module::Program,
            _ if copies => Module::Memory,
            _ => Module::CLibrary,
        }
    }
}

/// Parts of the address space, from lines such as
/// `7f0000000000-7f0000001000 r-xp 00000000 00:00 0 [vdso]`.
fn mappings(maps: &str) -> Vec<Mapping<'_>> {
    let parse = |line| -> Option<Mapping<'_>> {
        let mut fields = str::splitn(line, 6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
        let number = |hex| usize::from_str_radix(hex, 16).ok();
        Some(Mapping {
            range: number(start)?..number(end)?,
            offset,
            path: fields.nth(2)?.trim_start(),
        })
    };
    maps.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::NativeEndian;
    use object::read::elf::ElfFile64;
    use object::{Object, ObjectSection};

    const AGAIN: isize = -11;

    fn sample(address: usize, result: isize) -> Sample {
        Sample { address, result }
    }

    #[test]
    fn address_of_a_function_of_this_crate_is_found() {
        let here = Symbols::layer as *const () as usize;
        let mut symbols = Symbols::default();
        let expected = Tally::from([(Layer::Lab, 2)]);
        let samples = [sample(here, 0), sample(here, AGAIN)];
        assert_eq!(symbols.tally(&samples), expected);
        assert_eq!(symbols.tally(&samples), expected);
    }

    #[test]
    fn read_without_data_is_waiting() {
        let known = [(1, Layer::KernelRead), (2, Layer::KernelWrite)];
        let mut symbols = Symbols {
            known: HashMap::from(known),
        };
        let samples = [sample(1, 4096), sample(1, AGAIN), sample(2, AGAIN)];
        let expected = [Layer::KernelRead, Layer::Waiting, Layer::KernelWrite].map(|l| (l, 1));
        assert_eq!(symbols.tally(&samples), Tally::from(expected));
    }

    #[test]
    fn functions_that_copy_are_known_without_their_names() {
        let mut symbols = Symbols::default();
        for begin in memory_functions() {
            let expected = Tally::from([(Layer::Copies, 1)]);
            assert_eq!(symbols.tally(&[sample(begin + 8, 0)]), expected);
        }
    }

    #[test]
    fn address_behind_a_system_call_is_in_the_kernel() {
        let function = |name: &str, file: &str| {
            vec![Frame {
                function: name.to_owned(),
                file: file.to_owned(),
            }]
        };
        let functions = |address| match address {
            9 => function("recv", "/r/rustix-1.1.6/src/net/send_recv/mod.rs"),
            10 => function("turn", "crates/rpcrdma/src/driver/mod.rs"),
            _ => Vec::new(),
        };
        assert_eq!(layer_at(10, Module::Program, functions), Layer::KernelRead);
        assert_eq!(layer_at(11, Module::Program, functions), Layer::Unknown);
    }

    #[test]
    fn program_that_was_removed_is_still_read() {
        let removed = "/opt/rpcrdma (deleted)";
        assert_eq!(file(removed, Some(removed)), Some("/proc/self/exe"));
        assert_eq!(
            file("/lib/libc.so.6", Some(removed)),
            Some("/lib/libc.so.6")
        );
        assert_eq!(file("[vdso]", Some(removed)), None);
        assert_eq!(file("", None), None);
    }

    #[test]
    fn program_as_cargo_builds_it_has_debug_information() {
        assert!(has_debug_information());
    }

    #[test]
    fn program_with_nothing_but_names_has_no_lines() {
        let mut data = std::fs::read(PROGRAM).unwrap();
        let names = {
            let file = ElfFile64::<NativeEndian>::parse(&*data).unwrap();
            let names = file.section_by_name(".shstrtab").unwrap();
            names.file_range().unwrap()
        };
        let [start, len] = [names.0, names.1].map(|n| usize::try_from(n).unwrap());
        let names = &mut data[start..start + len];
        let other = String::from_utf8(names.to_vec()).unwrap();
        names.copy_from_slice(other.replace(".debug_", ".other_").as_bytes());
        assert_eq!(has_lines(&data), Some(false));
    }

    #[test]
    fn mappings_of_a_process_are_parsed() {
        let maps = "5000-6000 r-xp 00002000 00:19 7                  /opt/a program\n\
                    6000-7000 rw-p 00000000 00:00 0 \n\
                    7000-8000 r-xp 00026000 00:19 9   /usr/lib/x86_64-linux-gnu/libc.so.6\n\
                    9000-a000 r-xp 00000000 00:00 0   [vdso]\n";
        let found = mappings(maps);
        let paths: Vec<_> = found.iter().map(|mapping| mapping.path).collect();
        let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
        assert_eq!(paths, ["/opt/a program", "", libc, "[vdso]"]);
        assert_eq!(found[0].offset_of(0x5010), 0x2010);
        let modules = found
            .iter()
            .map(|mapping| mapping.module_at(mapping.range.start));
        let expected = [
            Module::Program,
            Module::Program,
            Module::CLibrary,
            Module::Vdso,
        ];
        assert!(modules.eq(expected));
    }
}
