//! Short options of commands that are named after one of coreutils, or ping(8): each means what it means
//! there, or nothing.

use crate::cli::Cli;
use clap::CommandFactory;

/// For each command its short options there, with what they are called here; `-` stands for those that
/// we do not have, which must not mean anything else.
const COREUTILS: [(&str, &str); 14] = [
    (
        "ls",
        "a=all A=almost-all b=- B=- c=changed C=columns d=directory D=- f=- F=classify g=- G=- \
         h=human-readable H=dereference-command-line i=inode I=- k=- l=long L=dereference m=- \
         n=numeric-uid-gid N=- o=- p=- q=- Q=- r=reverse R=recursive s=- S=by-size t=by-time T=- u=accessed \
         U=unsorted v=- w=width x=- X=- Z=- 1=one-per-line",
    ),
    (
        "df",
        "a=- B=- h=human-readable H=si i=inodes k=kibibytes l=- P=- t=- T=- v=- x=-",
    ),
    (
        "du",
        "0=- a=all B=- b=bytes c=total D=- d=max-depth H=- h=human-readable k=kibibytes L=- l=count-links \
         m=- P=- S=- s=summarize t=- x=one-file-system X=-",
    ),
    (
        "cp",
        "a=archive b=- d=- f=force i=- H=- l=- L=- n=no-clobber P=- p=preserve R=recursive r=recursive s=- S=- \
         t=- T=no-target-directory u=update v=verbose x=- Z=-",
    ),
    (
        "mv",
        "b=- f=force i=- n=no-clobber S=- t=- T=no-target-directory u=- v=verbose Z=-",
    ),
    (
        "ln",
        "b=- d=- F=- f=force i=- L=- n=no-dereference P=- r=- s=symbolic S=- t=- T=no-target-directory \
         v=verbose",
    ),
    (
        "rm",
        "f=force i=interactive I=- r=recursive R=recursive d=dir v=verbose",
    ),
    ("rmdir", "p=parents v=verbose"),
    ("mkdir", "m=mode p=parents v=verbose Z=-"),
    ("chmod", "c=changes f=- h=- v=verbose R=recursive"),
    (
        "chown",
        "c=changes f=- h=no-dereference H=- L=- P=- R=recursive v=verbose",
    ),
    (
        "touch",
        "a=accessed c=no-create d=date f=- h=no-dereference m=modified r=reference t=stamp",
    ),
    (
        "ping",
        "a=- A=adaptive b=- B=- c=count C=- d=- D=- e=- f=- i=interval I=- l=- L=- m=- M=- n=- N=- O=- p=- \
         q=quiet Q=- r=- R=- s=- S=- t=- T=- v=verbose w=deadline W=wait U=- 3=- 4=- 6=-",
    ),
    ("cat", "A=- b=- e=- E=- n=- s=- t=- T=- u=- v=-"),
];

/// Those that every command has, where coreutils have no other meaning for them.
const OURS: [(char, &str); 2] = [('h', "help"), ('V', "version")];

#[test]
fn short_options_mean_what_they_mean_to_coreutils_or_nothing() {
    let mut program = Cli::command();
    program.build();
    for (name, theirs) in COREUTILS {
        let command = program.find_subcommand(name).unwrap();
        let theirs: Vec<(char, &str)> = theirs
            .split_whitespace()
            .map(|option| (option.chars().next().unwrap(), &option[2..]))
            .collect();
        let mut ours: Vec<(char, String)> = Vec::new();
        for option in command.get_arguments() {
            let long = option.get_long().unwrap_or(option.get_id().as_str());
            let long = long.replace('_', "-");
            let shorts = option.get_short_and_visible_aliases().unwrap_or_default();
            ours.extend(shorts.into_iter().map(|short| (short, long.clone())));
        }
        for (short, long) in &ours {
            let expected = theirs.iter().chain(&OURS).find(|(other, _)| other == short);
            let expected = expected.unwrap_or_else(|| panic!("{name} -{short} is not known there"));
            assert_eq!(long, expected.1, "{name} -{short}");
        }
        for (short, long) in theirs.iter().filter(|(_, long)| *long != "-") {
            let known = ours.iter().any(|(other, _)| other == short);
            assert!(known, "{name} -{short} is to be {long}");
        }
    }
}
