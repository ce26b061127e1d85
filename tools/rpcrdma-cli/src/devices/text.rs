//! Devices as text: a table of all ports, or everything about each device.

use super::line::{AttributesLine, Line, PortLine};
use nfs_client::printable;
use printing::table::Columns;
use printing::units;

/// Text of an empty field.
const NOTHING: &str = "-";

/// How a device is used that is not used otherwise.
const BY_VERBS: &str = "with --provider verbs";

/// One row for each port, or for a device that could not be opened.
pub(super) fn table(lines: &[Line]) -> String {
    let mut table = Columns::new(&[0, 1, 3, 5, 6, 7, 8]);
    table.add([
        "device",
        "protocol",
        "port",
        "state",
        "MTU",
        "interface",
        "addresses",
        "access by",
        "usable",
    ]);
    for line in lines {
        let usable = match &line.unusable_because {
            None if !line.used_by_auto => format!("yes, {BY_VERBS}"),
            None => "yes".to_owned(),
            // The reason is longer than a cell, and has been printed.
            Some(_) if line.attributes.is_none() => "no".to_owned(),
            Some(why) => format!("no: {why}"),
        };
        let Some(found) = &line.attributes else {
            let mut row = vec![shown(&line.name), line.transport.clone()];
            row.resize(8, NOTHING.to_owned());
            row.push(usable);
            table.add(row);
            continue;
        };
        for port in &found.ports {
            table.add([
                shown(&line.name),
                port.protocol.clone(),
                port.number.to_string(),
                port.state.clone(),
                mtu(port.active_mtu),
                listed(port.interfaces.iter()),
                listed(port.addresses.iter()),
                found.remote_access.clone(),
                usable.clone(),
            ]);
        }
    }
    table.to_string()
}

/// Everything about each device, in a paragraph of its own.
pub(super) fn long(lines: &[Line]) -> String {
    let paragraphs: Vec<_> = lines.iter().map(paragraph).collect();
    paragraphs.join("\n")
}

fn paragraph(line: &Line) -> String {
    let mut text = format!(
        "{}: {}, {}\n",
        shown(&line.name),
        line.node_type,
        line.transport
    );
    let mut rows = Columns::new(&[0, 1]);
    let usable = match &line.unusable_because {
        None if !line.used_by_auto => {
            format!(
                "yes, {BY_VERBS}; otherwise software iWARP is used, which reaches the same peers"
            )
        }
        None => "yes".to_owned(),
        Some(why) => format!("no: {why}"),
    };
    rows.add(["  usable", &usable]);
    if let Some(found) = &line.attributes {
        about(found, &mut rows);
        for port in &found.ports {
            about_port(port, &mut rows);
        }
        limits(found, &mut rows);
    }
    text += &rows.to_string();
    text
}

fn about(found: &AttributesLine, rows: &mut Columns) {
    let windows = match &found.memory_windows_error {
        None => found.memory_windows.clone(),
        Some(error) => format!("{}, but none is allocated: {error}", found.memory_windows),
    };
    rows.add(["  memory windows", &windows]);
    let by = match found.remote_invalidation {
        true => "memory windows; the peer can invalidate them",
        false => "a registration for each call; the peer cannot invalidate it",
    };
    rows.add(["  remote access by", by]);
    let extensions = match found.memory_management_extensions {
        true => "yes",
        false => "no",
    };
    rows.add(["  memory management extensions", extensions]);
    let card = format!(
        "firmware {}, vendor 0x{:06x}, part {}, version {}",
        shown(&found.firmware),
        found.vendor_id,
        found.part_id,
        found.hardware_version
    );
    rows.add(["  card", &card]);
    let guids = format!("{}, card {}", found.node_guid, found.system_image_guid);
    rows.add(["  GUID", &guids]);
}

fn about_port(port: &PortLine, rows: &mut Columns) {
    let lid = port.lid.map(|lid| format!(", LID {lid}"));
    let about = format!(
        "{}, {} on {}, MTU {} of {}, messages up to {}{}",
        port.state,
        port.protocol,
        port.link_layer,
        mtu(port.active_mtu),
        mtu(port.max_mtu),
        units::size(port.max_message_bytes.into()),
        lid.unwrap_or_default()
    );
    rows.add([format!("  port {}", port.number), about]);
    if !port.addresses.is_empty() {
        rows.add(["    IP addresses", &listed(port.addresses.iter())]);
    }
    if !port.interfaces.is_empty() {
        rows.add(["    interfaces", &listed(port.interfaces.iter())]);
    }
    for gid in &port.gids {
        let interface = gid.interface.as_deref().map(shown);
        let interface = interface.map(|name| format!(", {name}"));
        let about = format!(
            "{} ({}{})",
            gid.address,
            gid.kind,
            interface.unwrap_or_default()
        );
        rows.add([format!("    GID {}", gid.index), about]);
    }
}

fn limits(found: &AttributesLine, rows: &mut Columns) {
    let limits = &found.limits;
    let region = units::size(limits.region_bytes);
    let all = [
        ("queue pairs", limits.queue_pairs.to_string()),
        ("work requests of a queue", limits.work_requests.to_string()),
        ("pieces of a work request", limits.pieces.to_string()),
        ("pieces of a Read", limits.read_pieces.to_string()),
        ("Reads served at a time", limits.inbound_reads.to_string()),
        ("Reads outstanding", limits.outstanding_reads.to_string()),
        ("completion queues", limits.completion_queues.to_string()),
        ("entries of one", limits.completions.to_string()),
        ("memory regions", limits.regions.to_string()),
        ("bytes of one", region),
        ("memory windows", limits.memory_windows.to_string()),
        ("protection domains", limits.protection_domains.to_string()),
        (
            "shared receive queues",
            limits.shared_receive_queues.to_string(),
        ),
    ];
    rows.add(["  limits", ""]);
    for (name, limit) in all {
        rows.add([format!("    {name}"), limit]);
    }
}

/// Bytes of an MTU.
fn mtu(bytes: Option<u16>) -> String {
    bytes.map_or_else(|| NOTHING.to_owned(), |bytes| bytes.to_string())
}

fn listed<'a>(texts: impl Iterator<Item = &'a String>) -> String {
    let texts: Vec<_> = texts.map(|text| shown(text)).collect();
    match texts.is_empty() {
        true => NOTHING.to_owned(),
        false => texts.join(", "),
    }
}

/// A name of the system, which must not steer the terminal.
fn shown(text: &str) -> String {
    printable(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::line::tests::{changed, device, line, unopened};
    use std::io::ErrorKind;
    use verbs_ibv::Windows;

    #[test]
    fn table_has_a_row_for_each_port_and_for_what_cannot_be_opened() {
        let two_ports = changed(|found| found.ports.push(found.ports[0].clone()));
        let denied = unopened("mlx5_0", ErrorKind::PermissionDenied);
        let lines = [line(two_ports), line(denied)];
        let text = table(&lines);
        let rows: Vec<Vec<_>> = text
            .lines()
            .map(|line| {
                line.split("  ")
                    .map(str::trim)
                    .filter(|cell| !cell.is_empty())
                    .collect()
            })
            .collect();
        assert_eq!(rows.len(), 4, "{text}");
        let expected = [
            "rxe0",
            "RoCE v2",
            "1",
            "active",
            "1024",
            "eth0",
            "192.0.2.1",
            "windows",
            "yes",
        ];
        assert_eq!(rows[1], expected);
        assert_eq!(rows[3][..2], ["mlx5_0", "InfiniBand"]);
        assert_eq!(rows[3].last(), Some(&"no"));
    }

    #[test]
    fn device_that_is_left_to_software_is_shown_with_what_uses_it() {
        let mut siw = line(device("siw0"));
        siw.used_by_auto = false;
        let lines = [siw];
        assert!(table(&lines).contains("yes, with --provider verbs\n"));
        assert!(long(&lines).contains("software iWARP is used"));
    }

    #[test]
    fn long_form_has_everything_and_no_control_characters() {
        let mut device = device("rxe\x1b0");
        if let Ok(found) = &mut device.attributes {
            found.firmware = "1\n2".to_owned();
            found.windows = Windows::Refused {
                reason: "Cannot allocate memory".to_owned(),
            };
        }
        let text = long(&[line(device)]);
        for part in [
            "rxe\\x1b0: channel adapter, InfiniBand\n",
            "usable",
            "type 2, but none is allocated: Cannot allocate memory",
            "a registration for each call; the peer cannot invalidate it",
            "firmware 1\\x0a2, vendor 0xffffff, part 3, version 4",
            "0000:0000:0000:0001, card 0000:0000:0000:0002",
            "active, RoCE v2 on Ethernet, MTU 1024 of 4096, messages up to 8 MiB",
            "192.0.2.1 (RoCE v2, eth0)",
            "shared receive queues",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        for limit in [
            "1000", "2000", "3000", "32767", "4000", "5000", "6000", "7000",
        ] {
            assert!(text.contains(limit), "{limit} is not in {text}");
        }
    }
}
