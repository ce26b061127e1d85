//! Tests of the file of `serve --config`.

use super::*;

/// Plans of a file, or its faults.
fn read(text: &str) -> Result<Vec<Plan>, Vec<ConfigError>> {
    let file = ConfigFile::new(Path::new("exports.toml"), text.to_owned());
    let (config, mut errors) = ServerFile::of(file).map_err(|error| vec![error])?;
    let plans = config.plans(&["127.0.0.0/8".parse().unwrap()], &mut errors);
    match errors.is_empty() {
        true => Ok(plans),
        false => Err(errors.into_vec()),
    }
}

fn plans(text: &str) -> Result<Vec<Plan>, ConfigError> {
    read(text).map_err(|mut errors| {
        assert_eq!(errors.len(), 1, "{errors:?}");
        errors.remove(0)
    })
}

/// Checks that nothing is wrong but this.
#[track_caller]
fn refused(text: &str, says: &str) {
    let error = plans(text).unwrap_err().to_string();
    assert!(error.starts_with(says), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn export_has_rules_for_its_clients() {
    let plans = plans(
        r#"
            [[export]]
            path = "/usr"
            name = "/data"
            read_only = true
            fsid = 7
            crossmnt = true
            anonuid = 99

            [[export.client]]
            hosts = ["192.0.2.7", "laptop"]
            read_only = false
            squash = "none"

            [[export.client]]
            hosts = ["192.0.2.0/24"]
            anongid = 98

            [[export]]
            path = "/tmp"
            "#,
    )
    .unwrap();
    let [data, tmp] = plans.as_slice() else {
        panic!("two exports");
    };
    assert_eq!(data.export.name, "/data");
    assert_eq!(data.export.dir, Path::new("/usr"));
    assert_eq!(data.fsid, NonZeroU32::new(7));
    assert!(data.crossmnt && !tmp.crossmnt);
    let rules: Vec<_> = data
        .clients
        .iter()
        .map(|rule| {
            let options = rule.options;
            let anonymous = (options.anonymous.uid, options.anonymous.gid);
            (
                rule.clients.to_string(),
                options.read_only,
                options.squash,
                anonymous,
            )
        })
        .collect();
    assert_eq!(
        rules,
        [
            ("192.0.2.7/32".to_owned(), false, Squash::None, (99, 65_534)),
            ("laptop".to_owned(), false, Squash::None, (99, 65_534)),
            ("192.0.2.0/24".to_owned(), true, Squash::Root, (99, 98)),
        ]
    );
    assert_eq!(tmp.export.name, "/tmp");
    assert_eq!(tmp.clients.len(), 1, "those of the server");
    assert!(!tmp.read_only());
}

#[test]
fn export_that_need_not_be_there_is_planned_all_the_same() {
    let plan = |more: &str| {
        let text = format!("[[export]]\npath = \"/no/such\"\n{more}\n");
        plans(&text).map(|mut plans| plans.remove(0))
    };
    let optional = plan("nofail = true").unwrap();
    assert_eq!(optional.presence, Presence::Optional);
    assert_eq!(optional.export.name, "/such");
    assert!(optional.locate().is_err());
    let mounted = plan("mountpoint = true").unwrap();
    assert_eq!(mounted.presence, Presence::Mounted("/no/such".into()));
    // It is there, but nothing is mounted.
    let usr = plans("[[export]]\npath = \"/usr/lib\"\nmountpoint = \"/usr/lib\"").unwrap();
    let why = usr[0].locate().unwrap_err().to_string();
    assert_eq!(why, "nothing is mounted at /usr/lib");
    let proc = plans("[[export]]\npath = \"/usr\"\nmountpoint = \"/proc\"").unwrap();
    assert_eq!(proc[0].locate().unwrap(), Path::new("/usr"));
    for required in ["", "nofail = false", "mountpoint = false"] {
        let error = plan(required).unwrap_err();
        assert!(error.of_machine, "{error}");
    }
    let error = plan("mountpoint = \"such\"").unwrap_err().to_string();
    assert!(
        error.ends_with("mountpoint: it does not begin with /"),
        "{error}"
    );
    let error = plan("mountpoint = 1").unwrap_err().to_string();
    let says = "1 does not fit: it is true, false, or the path of a mount point";
    assert!(error.contains(says), "{error}");
}

#[test]
fn errors_name_file_line_and_key() {
    let export = "[[export]]\npath = \"/usr\"\n";
    let with = |rest: &str| format!("{export}{rest}\n");
    refused(
        &with("redonly = true"),
        "exports.toml:3: export[0].redonly: there is no key redonly: write read_only = true",
    );
    refused(
        &with("read_only = 1"),
        "exports.toml:3: export[0].read_only: 1 does not fit: it is true or false",
    );
    refused(
        &with("squash = \"rot\""),
        "exports.toml:3: export[0].squash: it is \"root\"",
    );
    refused(
        &with("fsid = 0"),
        "exports.toml:3: export[0].fsid: 0 does not fit: it is a number, 1 to",
    );
    refused(
        &with("anonuid = -1"),
        "exports.toml:3: export[0].anonuid: -1 does not fit: it is a number, 0 to",
    );
    refused(
        &with("name = \"x\""),
        "exports.toml:3: export[0].name: it does not begin with /",
    );
    refused(&with("name = \"/..\""), "exports.toml:3: export[0].name: ");
    refused(
        &with("[[export.client]]\nhosts = [\"10.1.2.3/8\"]"),
        "exports.toml:4: export[0].client[0].hosts: '10.1.2.3/8': 10.1.2.3/8 has bits",
    );
    refused(
        &with("[[export.client]]\n"),
        "exports.toml:3: export[0].client[0]: hosts is missing",
    );
    refused(
        &with("[[export.client]]\nhosts = []"),
        "exports.toml:4: export[0].client[0].hosts: it is empty: this rule would be for nobody",
    );
    refused(
        &with("[[exports]]"),
        "exports.toml:3: exports: there is no key exports: write [[export]]",
    );
    refused(&with("read_only true"), "exports.toml:3: ");
    refused(
        "[[export]]\nname = \"/x\"\n",
        "exports.toml:1: export[0]: path is missing",
    );
    refused(
        "[[export]]\npath = \"usr\"",
        "exports.toml:2: export[0].path: it does not begin",
    );
    refused(
        "[[export]]\npath = \"/no/such\"",
        "exports.toml:2: export[0].path: /no/such: cannot be served: ",
    );
    refused("", "exports.toml:1: export: there has to be one");
    refused(
        &export.repeat(2),
        "exports.toml:4: export[1].name: export[0] is named /usr too",
    );
    refused(
        &format!("{export}fsid = 7\n[[export]]\npath = \"/tmp\"\nfsid = 7"),
        "exports.toml:6: export[1].fsid: export[0] has this number too",
    );
}

#[test]
fn all_that_is_wrong_is_said_in_order_and_nothing_that_follows_from_it() {
    let errors = read(
        r#"
            [server]
            listen = "0.0.0.0"

            [[export]]
            pth = "/usr"

            [[export]]
            path = "/no/such"
            fsid = 7
            read_only = "yes"

            [[export]]
            path = "/no/such"
            nofail = 1

            [[export]]
            path = "/usr"
            name = "data"
            fsid = 7
            [[export.client]]
            hosts = ["@trusted", "laptop", "*"]
            [[export.client]]
            host = "laptop"
            [[export.client]]

            [[export]]
            path = "/usr"

            [[export]]
            path = "/usr"
            mountpoint = "usr"
            "#,
    );
    let expected = [
        "exports.toml:6: export[0].pth: there is no key pth",
        "exports.toml:9: export[1].path: /no/such: cannot be served",
        "exports.toml:11: export[1].read_only: \"yes\" does not fit",
        "exports.toml:15: export[2].nofail: 1 does not fit",
        "exports.toml:19: export[3].name: it does not begin with /",
        "exports.toml:20: export[3].fsid: export[1] has this number too",
        "exports.toml:22: export[3].client[0].hosts: '@trusted'",
        "exports.toml:22: export[3].client[0].hosts: '*'",
        "exports.toml:24: export[3].client[1].host: there is no key host",
        "exports.toml:25: export[3].client[2]: hosts is missing",
        "exports.toml:32: export[5].mountpoint: it does not begin with /",
    ];
    let errors = errors.unwrap_err();
    assert_eq!(errors.len(), expected.len(), "{errors:?}");
    for (error, says) in errors.iter().zip(expected) {
        assert!(error.to_string().starts_with(says), "{error}");
    }
}

#[test]
fn directory_that_is_not_there_does_not_hide_that_it_is_for_nobody() {
    let text = "[[export]]\npath = \"/no/such\"\n".to_owned();
    let file = ConfigFile::new(Path::new("exports.toml"), text);
    let (config, mut errors) = ServerFile::of(file).unwrap();
    assert!(config.plans(&[], &mut errors).is_empty());
    let errors: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
    let [path, client] = &errors[..] else {
        panic!("{errors:?}");
    };
    assert!(
        path.starts_with("exports.toml:2: export[0].path: "),
        "{path}"
    );
    assert!(
        client.starts_with("exports.toml:2: export[0].client: it is for nobody"),
        "{client}"
    );
}

#[test]
fn errors_say_what_to_write_instead() {
    let check = |rest: &str, says: &str| {
        let text = format!("[[export]]\npath = \"/usr\"\n{rest}\n");
        let error = plans(&text).unwrap_err().to_string();
        assert!(error.contains(says), "{rest}: {error}");
    };
    check("read_only = yes", "exports.toml:3: ");
    for word in ["yes", "no", "True", "OFF # not yet"] {
        check(&format!("read_only = {word}"), ": write true or false");
    }
    check("read_only = 1", ": 1 does not fit: it is true or false");
    check(
        "read_only = \"yes\"",
        "\"yes\" does not fit: it is true or false",
    );
    check("path = \"/x\"", "exports.toml:3: path is there twice");
    check(
        "[server]\n[server]",
        "exports.toml:4: [server] is there twice",
    );
    check("name = /data", "a text has quotes: write name = \"/data\"");
    check("squash = none", "write squash = \"none\"");
    check(
        "squash = true",
        "squash: it is \"root\", \"remote-root\", \"all\" or \"none\"",
    );
    check("[server]\nlisten = 0.0.0.0", "write listen = \"0.0.0.0\"");
    let with = |hosts: &str| format!("[[export.client]]\nhosts = {hosts}");
    check(
        &with("\"x\""),
        "hosts: \"x\" does not fit: write hosts = [\"x\"]",
    );
    check(
        &with("[10.0.0.0/8, laptop]"),
        "write hosts = [\"10.0.0.0/8\", \"laptop\"]",
    );
    check(
        &with("[1]"),
        "client[0].hosts[0]: 1 does not fit: it is a text, in quotes",
    );
    check(
        &with("[\"*\"]"),
        "for everybody, write 0.0.0.0/0 (IPv4) and ::/0 (IPv6)",
    );
    let wildcard = "wildcards are not supported: list hosts, or networks as 192.0.2.0/24";
    check(&with("[\"*.example.org\"]"), wildcard);
    check(&with("[\"192.168.1.*\"]"), wildcard);
    check(
        &with("[\"@trusted\"]"),
        "netgroups are not supported: list hosts or networks",
    );
    let mask = "10.1.0.0/255.255.0.0";
    check(&with(&format!("[\"{mask}\"]")), "write 10.1.0.0/16");
    check(
        "[export.client]\nhosts = [\"x\"]",
        "write [[export.client]], in two brackets",
    );
    check("anonuid = \"nobody\"", "it is a number, 0 to 4294967295");
    check("anongid = 4294967296", "it is a number, 0 to 4294967295");
    check("fsid = 0", "it is a number, 1 to 4294967295");
    check("ro = true", "there is no key ro: write read_only = true");
    check("no_root_squash = true", "write squash = \"none\"");
    check(
        "[[export.clients]]",
        "there is no key clients: write [[export.client]]",
    );
    check(
        "colour = 1",
        "there is no key colour; there are path, name, ",
    );
    refused(
        "[export]\npath = \"/usr\"",
        "exports.toml:1: export: a table does not fit: write [[export]], in two brackets",
    );
    refused(
        "[[export]]\npath = [\"/usr\"]",
        "exports.toml:2: export[0].path: a list does not fit: it is the path of a directory, in quotes",
    );
}

#[test]
fn exports_and_clients_are_bounded() {
    let many: String = (0..=MAX_EXPORTS)
        .map(|n| format!("[[export]]\npath = \"/usr\"\nname = \"/{n}\"\n"))
        .collect();
    refused(
        &many,
        "exports.toml:1: export: there has to be one at least, and 1024",
    );
    let hosts = "\"a\",".repeat(MAX_CLIENTS + 1);
    let many = format!("[[export]]\npath = \"/usr\"\n[[export.client]]\nhosts = [{hosts}]");
    refused(
        &many,
        "exports.toml:2: export[0].client: it has more than 1024",
    );
}

#[test]
fn file_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(crate::config::MAX_FILE + 1).unwrap();
    let error = ServerFile::load(&path).unwrap_err().to_string();
    assert!(error.contains("more than 1048576 bytes"), "{error}");
    let error = ServerFile::load(&dir.path().join("missing")).unwrap_err();
    assert!(format!("{error:#}").contains("No such file"), "{error:#}");
}

#[test]
fn key_of_another_table_is_told_where_it_belongs() {
    let check = |text: &str, says: &str| refused(text, &format!("exports.toml:{says}"));
    check(
        "read_only = true\n[[export]]\npath = \"/usr\"",
        "1: read_only: there is no key read_only here: it belongs into [[export]] or [[export.client]]",
    );
    check(
        "[[export]]\npath = \"/usr\"\nthreads = 2",
        "3: export[0].threads: there is no key threads here: it belongs into [server]",
    );
    check(
        "[[export]]\npath = \"/usr\"\nhosts = [\"laptop\"]",
        "3: export[0].hosts: there is no key hosts here: it belongs into [[export.client]]",
    );
    check(
        "[[export]]\npath = \"/usr\"\n[[export.client]]\nhosts = [\"laptop\"]\nfsid = 1",
        "5: export[0].client[0].fsid: there is no key fsid here: it belongs into [[export]]",
    );
}
