-- Wireshark dissector for RPC-over-RDMA version two on iWARP, and for the private data of RFC 8797.
--
-- Version two is one of two dialects under the same version number:
--
-- * draft-cel-nfsv4-rpcrdma-version-two-01 (cel-01), with the operations and characteristics of
--   draft-dnoveck-nfsv4-rpcrdma-xcharext-02 (xcharext) in RDMA2_OPTIONAL and the handles for remote
--   invalidation of draft-cel-nfsv4-reminv-design-03 (reminv) in the chunk lists;
-- * draft-ietf-nfsv4-rpcrdma-version-two-07 (ietf-07).
--
-- Most messages belong to one of them only; that of a connection is taken from its first such message.
-- Other drafts have other headers under the same version number; this dissector does not read them.
--
-- Installation, display filters and limits: README.md beside this file.
--
-- SPDX-License-Identifier: MIT OR Apache-2.0

local VERSION = 2

local MSG, NOMSG, ERROR, OPTIONAL = 0, 1, 4, 5
local CALL, REPLY = 0, 1
local INITXCH, REQXCH, RESPXCH, UPDXCH = 1, 2, 3, 4
local XCHAR_RBSIZ, XCHAR_REQREMINV, XCHAR_BRS, XCHAR_DESIGNS = 1, 2, 3, 4294967040
local ERR_VERS = 1

-- Header types of ietf-07 (section 6.1); RDMA2_ERROR is the same in both.
local GRANT, CONNPROP_MIDDLE, CONNPROP_FINAL = 5, 6, 7
local CALL_EXTERNAL, CALL_MIDDLE, CALL_INLINE = 8, 9, 10
local REPLY_EXTERNAL, REPLY_MIDDLE, REPLY_INLINE = 11, 12, 13
-- Its properties (section 5.2).
local PROP_SBSIZ, PROP_RBSIZ, PROP_RSSIZ, PROP_RCSIZ, PROP_BRS, PROP_HOSTAUTH = 1, 2, 3, 4, 5, 6

-- rdma_opcode of RDMAP (RFC 5040, section 4.3).
local RDMA_WRITE, RDMA_READ_REQUEST, RDMA_READ_RESPONSE = 0, 1, 2
local SENDS = { [3] = true, [4] = true, [5] = true, [6] = true }

-- Bytes of the words that all headers begin with, and of the shortest header of cel-01 and that of an
-- RDMA2_OPTIONAL without information.
local PREFIX, MIN_HEADER, MIN_OPTIONAL = 16, 20, 28
-- Bytes of the DDP header of an untagged segment (RFC 5041, section 4.3), with its control fields.
local UNTAGGED_HEADER = 18
-- Handles for remote invalidation in one call (docs/design/version-two.md).
local MAX_INVALIDATE_HANDLES = 16
-- Words of a subset of the characteristics in one message.
local MAX_SUBSET_WORDS = 4
-- Bytes of the smallest valid Receive Buffer Size.
local MIN_RECEIVE_SIZE = 1024
-- Properties in one message of ietf-07, and bytes of one Host Authentication Message.
local MAX_PROPERTIES, MAX_HOSTAUTH = 512, 4096
-- Bytes of one message put together from chunks, and of all chunk data kept for a capture.
local MAX_MESSAGE = 64 * 1024 * 1024
local MAX_KEPT = 512 * 1024 * 1024

local procedures = {
    [MSG] = "RDMA2_MSG",
    [NOMSG] = "RDMA2_NOMSG",
    [ERROR] = "RDMA2_ERROR",
    [OPTIONAL] = "RDMA2_OPTIONAL",
}
local directions = { [CALL] = "Call", [REPLY] = "Reply" }
local errors = {
    [1] = "RDMA2_ERR_VERS",
    [2] = "RDMA2_ERR_BAD_HEADER",
    [3] = "RDMA2_ERR_INVAL_OPTION",
}
local operations = {
    [INITXCH] = "ROPT_INITXCH",
    [REQXCH] = "ROPT_REQXCH",
    [RESPXCH] = "ROPT_RESPXCH",
    [UPDXCH] = "ROPT_UPDXCH",
}
local characteristics = {
    [XCHAR_RBSIZ] = "XCHAR_RBSIZ (Receive Buffer Size)",
    [XCHAR_REQREMINV] = "XCHAR_REQREMINV (Requester Remote Invalidation)",
    [XCHAR_BRS] = "XCHAR_BRS (Backward Request Support)",
    [XCHAR_DESIGNS] = "Remote Invalidation Designs (experimental)",
}
local htypes = {
    [ERROR] = "RDMA2_ERROR",
    [GRANT] = "RDMA2_GRANT",
    [CONNPROP_MIDDLE] = "RDMA2_CONNPROP_MIDDLE",
    [CONNPROP_FINAL] = "RDMA2_CONNPROP_FINAL",
    [CALL_EXTERNAL] = "RDMA2_CALL_EXTERNAL",
    [CALL_MIDDLE] = "RDMA2_CALL_MIDDLE",
    [CALL_INLINE] = "RDMA2_CALL_INLINE",
    [REPLY_EXTERNAL] = "RDMA2_REPLY_EXTERNAL",
    [REPLY_MIDDLE] = "RDMA2_REPLY_MIDDLE",
    [REPLY_INLINE] = "RDMA2_REPLY_INLINE",
}
local ietf_errors = {
    [1] = "RDMA2_ERR_VERS",
    [2] = "RDMA2_ERR_BAD_XDR",
    [3] = "RDMA2_ERR_BAD_PROPVAL",
    [4] = "RDMA2_ERR_INVAL_HTYPE",
    [5] = "RDMA2_ERR_INVAL_CONT",
    [6] = "RDMA2_ERR_READ_CHUNKS",
    [7] = "RDMA2_ERR_WRITE_CHUNKS",
    [8] = "RDMA2_ERR_SEGMENTS",
    [9] = "RDMA2_ERR_WRITE_RESOURCE",
    [10] = "RDMA2_ERR_REPLY_RESOURCE",
    [11] = "RDMA2_ERR_VERS_MISMATCH",
    [100] = "RDMA2_ERR_SYSTEM",
}
local properties = {
    [PROP_SBSIZ] = "RDMA2_PROPID_SBSIZ (Maximum Send Size)",
    [PROP_RBSIZ] = "RDMA2_PROPID_RBSIZ (Receive Buffer Size)",
    [PROP_RSSIZ] = "RDMA2_PROPID_RSSIZ (Maximum Segment Size)",
    [PROP_RCSIZ] = "RDMA2_PROPID_RCSIZ (Maximum Segment Count)",
    [PROP_BRS] = "RDMA2_PROPID_BRS (Reverse-Direction Support)",
    [PROP_HOSTAUTH] = "RDMA2_PROPID_HOSTAUTH (Host Authentication Message)",
}
local reverse = {
    [0] = "RDMA2_RVRSDIR_NONE",
    [1] = "RDMA2_RVRSDIR_SIMPLE",
    [2] = "RDMA2_RVRSDIR_CONT",
    [3] = "RDMA2_RVRSDIR_GENL",
}
local CEL_01, IETF_07 = 1, 2
local dialects = { [CEL_01] = "cel-01", [IETF_07] = "ietf-07" }
local backward = { [0] = "BKREQSUP_NONE", [1] = "BKREQSUP_INLINE", [2] = "BKREQSUP_GENL" }
local layouts = { [0] = "none", [1] = "one handle", [2] = "several handles" }
local LAYOUT_NONE, LAYOUT_ONE, LAYOUT_SEVERAL = 0, 1, 2

local proto = Proto("rpcordma2", "RPC-over-RDMA version two")

local f = {
    xid = ProtoField.uint32("rpcordma2.xid", "XID", base.HEX),
    version = ProtoField.uint32("rpcordma2.version", "Version"),
    credits = ProtoField.uint32("rpcordma2.credits", "Credits"),
    -- The names of these numbers depend on the dialect.
    procedure = ProtoField.uint32("rpcordma2.procedure", "Procedure"),
    dialect = ProtoField.string("rpcordma2.dialect", "Dialect"),
    direction = ProtoField.uint32("rpcordma2.direction", "Direction", base.DEC, directions),
    layout = ProtoField.uint32(
        "rpcordma2.layout", "Handles for remote invalidation", base.DEC, layouts),
    inv_count = ProtoField.uint32("rpcordma2.inv_count", "Handles to invalidate"),
    inv_handle = ProtoField.uint32("rpcordma2.inv_handle", "Handle to invalidate", base.HEX),
    reads = ProtoField.uint32("rpcordma2.reads", "Read list"),
    writes = ProtoField.uint32("rpcordma2.writes", "Write list"),
    reply = ProtoField.uint32("rpcordma2.reply", "Reply chunk"),
    segments = ProtoField.uint32("rpcordma2.segments", "Segments"),
    segment = ProtoField.none("rpcordma2.segment", "Segment"),
    position = ProtoField.uint32("rpcordma2.position", "Position"),
    handle = ProtoField.uint32("rpcordma2.handle", "Handle", base.HEX),
    length = ProtoField.uint32("rpcordma2.length", "Length"),
    offset = ProtoField.uint64("rpcordma2.offset", "Offset", base.HEX),
    error = ProtoField.uint32("rpcordma2.error", "Error"),
    vers_low = ProtoField.uint32("rpcordma2.vers_low", "Lowest version"),
    vers_high = ProtoField.uint32("rpcordma2.vers_high", "Highest version"),
    max_chunks = ProtoField.uint32("rpcordma2.max_chunks", "Largest number of chunks"),
    max_segments = ProtoField.uint32("rpcordma2.max_segments", "Largest number of segments"),
    chunk_index = ProtoField.uint32("rpcordma2.chunk_index", "Write chunk, counted from one"),
    length_needed = ProtoField.uint32("rpcordma2.length_needed", "Length needed"),
    call_chunk = ProtoField.uint32("rpcordma2.call_chunk", "Call chunk"),
    remaining = ProtoField.uint32("rpcordma2.remaining", "Bytes that remain"),
    property_count = ProtoField.uint32("rpcordma2.property_count", "Properties"),
    property = ProtoField.uint32("rpcordma2.property", "Property", base.DEC, properties),
    property_length = ProtoField.uint32("rpcordma2.property_length", "Length of the value"),
    property_data = ProtoField.bytes("rpcordma2.property_data", "Value"),
    sbsiz = ProtoField.uint32("rpcordma2.sbsiz", "Maximum Send Size"),
    rssiz = ProtoField.uint32("rpcordma2.rssiz", "Maximum Segment Size"),
    rcsiz = ProtoField.uint32("rpcordma2.rcsiz", "Maximum Segment Count"),
    hostauth = ProtoField.bytes("rpcordma2.hostauth", "Host Authentication Message"),
    operation = ProtoField.uint32("rpcordma2.operation", "Operation", base.DEC, operations),
    info_length = ProtoField.uint32("rpcordma2.info_length", "Length of the information"),
    info = ProtoField.bytes("rpcordma2.info", "Information"),
    xchar_count = ProtoField.uint32("rpcordma2.xchar_count", "Characteristics"),
    xchar = ProtoField.uint32("rpcordma2.xchar", "Characteristic", base.DEC, characteristics),
    xchar_length = ProtoField.uint32("rpcordma2.xchar_length", "Length of the value"),
    xchar_data = ProtoField.bytes("rpcordma2.xchar_data", "Value"),
    rbsiz = ProtoField.uint32("rpcordma2.rbsiz", "Receive Buffer Size"),
    reqreminv = ProtoField.bool("rpcordma2.reqreminv", "Requester Remote Invalidation"),
    brs = ProtoField.uint32("rpcordma2.brs", "Support of the other direction"),
    designs = ProtoField.uint32("rpcordma2.designs", "Remote Invalidation Designs", base.HEX),
    design_fixed = ProtoField.bool("rpcordma2.designs.fixed", "fixed (reminv 4.3)", 32, nil, 0x04),
    design_one = ProtoField.bool("rpcordma2.designs.per_call", "per_call (reminv 4.4)", 32, nil, 0x08),
    design_several = ProtoField.bool(
        "rpcordma2.designs.per_call_several", "per_call_several (reminv 4.5)", 32, nil, 0x10),
    design_inter = ProtoField.bool(
        "rpcordma2.designs.inter_call", "inter_call (reminv 4.6)", 32, nil, 0x20),
    design_all = ProtoField.bool(
        "rpcordma2.designs.per_call_all", "per_call_all (reminv 4.5, 2.4)", 32, nil, 0x40),
    subset = ProtoField.none("rpcordma2.subset", "Subset"),
    subset_words = ProtoField.uint32("rpcordma2.subset_words", "Words"),
    nochg = ProtoField.uint32("rpcordma2.nochg", "Will not change", base.HEX),
    done = ProtoField.uint32("rpcordma2.done", "Done", base.HEX),
    rejected = ProtoField.uint32("rpcordma2.rejected", "Rejected", base.HEX),
    pending = ProtoField.uint32("rpcordma2.pending", "Pending", base.HEX),
    pendclr = ProtoField.bool("rpcordma2.pendclr", "Ends a pending request"),
    trailing = ProtoField.bytes("rpcordma2.trailing", "Bytes that belong to nothing"),
    data = ProtoField.bytes("rpcordma2.data", "Chunk data"),
    part = ProtoField.bytes("rpcordma2.part", "Part of a message"),
    request_in = ProtoField.framenum(
        "rpcordma2.request_in", "Answers the message in", base.NONE, frametype.RESPONSE),
    reassembled_in = ProtoField.framenum("rpcordma2.reassembled_in", "Message put together in"),
    header_in = ProtoField.framenum("rpcordma2.header_in", "Header of the message in"),
}
local in_order = {}
for _, field in pairs(f) do
    in_order[#in_order + 1] = field
end
proto.fields = in_order

local e = {
    cut = ProtoExpert.new("rpcordma2.cut", "The message ends before this field",
        expert.group.MALFORMED, expert.severity.ERROR),
    invalid = ProtoExpert.new("rpcordma2.invalid", "Invalid value",
        expert.group.MALFORMED, expert.severity.ERROR),
    unusual = ProtoExpert.new("rpcordma2.unusual", "Unusual value",
        expert.group.PROTOCOL, expert.severity.WARN),
    refused = ProtoExpert.new("rpcordma2.refused", "The peer refused a message",
        expert.group.RESPONSE_CODE, expert.severity.NOTE),
    missing = ProtoExpert.new("rpcordma2.missing", "Chunk data is missing",
        expert.group.REASSEMBLE, expert.severity.WARN),
}
proto.experts = { e.cut, e.invalid, e.unusual, e.refused, e.missing }

local DIALECT_AUTOMATIC = 3
proto.prefs.dialect = Pref.enum("Dialect", DIALECT_AUTOMATIC,
    "The draft that defines the messages. Automatic takes it from the first message of a connection "
    .. "that only one of them has; choose another one for a capture that begins later",
    {
        { 1, "Automatic", DIALECT_AUTOMATIC },
        { 2, "cel-01", CEL_01 },
        { 3, "ietf-07", IETF_07 },
    }, false)
local LAYOUT_AUTOMATIC = 3
proto.prefs.layout = Pref.enum("Handles for remote invalidation", LAYOUT_AUTOMATIC,
    "Layout of the chunk lists. Automatic takes it from the ROPT_INITXCH messages of the connection; "
    .. "choose another one for a capture that begins later",
    {
        { 1, "Automatic", LAYOUT_AUTOMATIC },
        { 2, "None", LAYOUT_NONE },
        { 3, "One handle", LAYOUT_ONE },
        { 4, "Several handles", LAYOUT_SEVERAL },
    }, false)
proto.prefs.reassemble = Pref.bool("Put chunk data together", true,
    "Keep the data of RDMA Reads and Writes, to decode messages and NFS data that moved by chunk")

-- What Wireshark's own dissectors found below this message. The last value is that of this message.
local w = {
    stream = Field.new("tcp.stream"),
    ulpdu = Field.new("iwarp_mpa.ulpdulength"),
    private = Field.new("iwarp_mpa.privatedata"),
    revision = Field.new("iwarp_mpa.rev"),
    reserved = Field.new("iwarp_mpa.res"),
    opcode = Field.new("iwarp_rdma.opcode"),
    last = Field.new("iwarp_ddp.last_flag"),
    msn = Field.new("iwarp_ddp.msn"),
    mo = Field.new("iwarp_ddp.mo"),
    stag = Field.new("iwarp_ddp.stag"),
    to = Field.new("iwarp_ddp.tagged_offset"),
    sink_stag = Field.new("iwarp_rdma.sinkstag"),
    sink_to = Field.new("iwarp_rdma.sinkto"),
    source_stag = Field.new("iwarp_rdma.srcstag"),
    source_to = Field.new("iwarp_rdma.srcto"),
    read_size = Field.new("iwarp_rdma.rdmardsz"),
}

local function last_value(extractor)
    local all = { extractor() }
    local field = all[#all]
    return field and field.value, #all
end

local rpc = Dissector.get("rpc")

-- State of the capture: connections by TCP stream, and what the first pass found for each message,
-- by frame and by place in the frame.
local connections, records, kept

local function forget_capture()
    connections, records, kept = {}, {}, 0
end

forget_capture()
proto.init = forget_capture

local function connection_of(stream)
    local connection = connections[stream]
    if not connection then
        connection = {
            dialect = nil,        -- that of the first message that only one has
            layout = LAYOUT_NONE, -- of the chunk lists from here on
            continued = {},       -- parts of RPC messages (ietf-07), by endpoint, direction and XID
            offered = {},         -- designs in the first INITXCH of each end, by its endpoint
            calls = {},           -- frame of a message that wants an answer, by endpoint and XID
            parts = {},           -- untagged messages of several DDP segments, by endpoint and MSN
            memory = {},          -- data that moved by RDMA, by owner and handle
            sinks = {},           -- Read Requests, by owner and handle of the sink
            waiting = {},         -- calls whose Read chunks are not complete
        }
        connections[stream] = connection
    end
    return connection
end

-- A cursor over the bytes of a header. `take` adds a field to the tree and returns its value; past
-- the end it raises CUT, which `dissect_header` turns into expert information.
local CUT = {}

local Cursor = {}
Cursor.__index = Cursor

local function cursor(tvb, from, to)
    return setmetatable({ tvb = tvb, at = from, to = to }, Cursor)
end

function Cursor:left()
    return self.to - self.at
end

function Cursor:need(bytes, tree, what)
    if self:left() < bytes then
        tree:add_proto_expert_info(e.cut,
            string.format("The message ends before %s", what or "this field"))
        error(CUT, 0)
    end
end

function Cursor:u32(tree, field, what)
    self:need(4, tree, what)
    local range = self.tvb(self.at, 4)
    self.at = self.at + 4
    local item = field and tree:add(field, range)
    return range:uint(), item
end

function Cursor:u64(tree, field, what)
    self:need(8, tree, what)
    local range = self.tvb(self.at, 8)
    self.at = self.at + 8
    return range:uint64(), tree:add(field, range)
end

local function padded(length)
    return math.ceil(length / 4) * 4
end

-- The padding of opaque data of this length at the cursor (RFC 4506, section 4.10). The caller has seen that it is there.
local function check_padding(c, tree, length)
    for at = c.at + length, c.at + padded(length) - 1 do
        if c.tvb(at, 1):uint() ~= 0 then
            tree:add_proto_expert_info(e.invalid, "Padding that is not zero")
            return
        end
    end
end

local function bit_is_set(word, bit)
    return math.floor(word / 2 ^ bit) % 2 == 1
end

-- Chunk lists (RFC 8166, section 4.3; cel-01, section 4.2).

local function dissect_segment(c, tree, with_position)
    local start = c.at
    local item = tree:add(f.segment, c.tvb(start, math.min(c:left(), with_position and 20 or 16)))
    local segment = {}
    if with_position then
        local position
        segment.position, position = c:u32(item, f.position, "a Position")
        if segment.position % 4 ~= 0 then
            position:add_proto_expert_info(e.invalid, "A Position is a multiple of four")
        end
    end
    segment.handle = c:u32(item, f.handle, "a handle")
    segment.length = c:u32(item, f.length, "a length")
    segment.offset = c:u64(item, f.offset, "an offset")
    item:set_text(string.format("%sHandle 0x%08x, %u bytes at 0x%s",
        with_position and string.format("Position %u: ", segment.position) or "",
        segment.handle, segment.length, segment.offset:tohex()))
    return segment
end

-- The word that says whether an entry of a list follows (an XDR optional).
local function follows(c, tree, what)
    local value = c:u32(tree, nil, what)
    if value > 1 then
        tree:add_proto_expert_info(e.invalid, string.format("%u where 0 or 1 belongs", value))
        error(CUT, 0)
    end
    return value == 1
end

local function dissect_read_list(c, tree, field, name)
    local start, segments = c.at, {}
    local item = tree:add(field, c.tvb(start, math.min(c:left(), 4)), 0)
    while follows(c, item, string.format("the end of the %s", name)) do
        segments[#segments + 1] = dissect_segment(c, item, true)
    end
    item:set_len(c.at - start)
    item:set_text(string.format("%s: %u segments", name, #segments))
    return segments, item
end

local function dissect_write_chunk(c, tree)
    local count = c:u32(tree, f.segments, "the number of segments")
    local segments = {}
    for _ = 1, count do
        segments[#segments + 1] = dissect_segment(c, tree, false)
    end
    return segments
end

local function dissect_write_list(c, tree)
    local start, chunks = c.at, {}
    local item = tree:add(f.writes, c.tvb(start, math.min(c:left(), 4)), 0)
    while follows(c, item, "the end of the Write list") do
        local chunk = item:add(proto, c.tvb(c.at, math.min(c:left(), 4)))
        chunk:set_text(string.format("Write chunk %u", #chunks + 1))
        chunks[#chunks + 1] = dissect_write_chunk(c, chunk)
    end
    item:set_len(c.at - start)
    item:set_text(string.format("Write list: %u chunks", #chunks))
    return chunks
end

local function dissect_reply_chunk(c, tree)
    local start = c.at
    local item = tree:add(f.reply, c.tvb(start, math.min(c:left(), 4)), 0)
    local chunk
    if follows(c, item, "the Reply chunk") then
        chunk = dissect_write_chunk(c, item)
    end
    item:set_len(c.at - start)
    item:set_text(chunk and string.format("Reply chunk: %u segments", #chunk) or "Reply chunk: none")
    return chunk
end

local function dissect_invalidation(c, tree, layout)
    local item = tree:add(f.layout, c.tvb(c.at, 0), layout)
    item:set_generated(true)
    if layout == LAYOUT_ONE then
        c:u32(tree, f.inv_handle, "the handle to invalidate")
    elseif layout == LAYOUT_SEVERAL then
        local count, counted = c:u32(tree, f.inv_count, "the handles to invalidate")
        if count > MAX_INVALIDATE_HANDLES then
            counted:add_proto_expert_info(e.invalid,
                string.format("More than %u handles", MAX_INVALIDATE_HANDLES))
        end
        for _ = 1, count do
            c:u32(tree, f.inv_handle, "a handle to invalidate")
        end
    end
end

local function dissect_direction(c, tree, message)
    local direction, item = c:u32(tree, f.direction, "the direction")
    message.direction = direction
    if not directions[direction] then
        item:add_proto_expert_info(e.invalid, "A direction is 0 (Call) or 1 (Reply)")
    end
end

local function dissect_chunks(c, tree, message, layout)
    dissect_direction(c, tree, message)
    dissect_invalidation(c, tree, layout)
    message.inline = message.procedure == MSG
    message.external = message.procedure == NOMSG
    message.reads = dissect_read_list(c, tree, f.reads, "Read list")
    message.writes = dissect_write_list(c, tree)
    message.reply = dissect_reply_chunk(c, tree)
    if message.external
        and #message.reads == 0 and #message.writes == 0 and not message.reply then
        tree:add_proto_expert_info(e.invalid, "An RDMA2_NOMSG has its RPC message in a chunk")
    end
end

local function dissect_error(c, tree, message)
    local code, item = c:u32(tree, f.error, "the error")
    message.direction = REPLY
    message.name = errors[code] or string.format("error %u", code)
    item:append_text(string.format(" (%s)", message.name))
    if not errors[code] then
        item:add_proto_expert_info(e.invalid, "There is no such error")
    elseif code == ERR_VERS then
        local low = c:u32(tree, f.vers_low, "the lowest version")
        local high = c:u32(tree, f.vers_high, "the highest version")
        message.name = string.format("%s (%u to %u)", message.name, low, high)
    end
    item:add_proto_expert_info(e.refused, message.name)
end

-- Characteristics (xcharext, sections 2 and 3). A value that is too short is marked and skipped; its
-- length says where the next one begins.
local function dissect_value(id, range, item, found)
    if not characteristics[id] then
        item:add(f.xchar_data, range)
        return
    end
    if range:len() < 4 then
        item:add_proto_expert_info(e.cut, "The value is shorter than its type")
        return
    end
    local word = range(0, 4)
    local value = word:uint()
    found[id] = value
    if id == XCHAR_RBSIZ then
        local size = item:add(f.rbsiz, word)
        item:append_text(string.format(": %u bytes", value))
        if value < MIN_RECEIVE_SIZE then
            size:add_proto_expert_info(e.invalid,
                string.format("Below %u, which every peer takes", MIN_RECEIVE_SIZE))
        end
    elseif id == XCHAR_REQREMINV then
        local flag = item:add(f.reqreminv, word)
        item:append_text(value == 0 and ": false" or ": true")
        if value > 1 then
            flag:add_proto_expert_info(e.invalid, "An XDR bool is 0 or 1")
        end
    elseif id == XCHAR_BRS then
        local level = item:add(f.brs, word)
        item:append_text(": " .. (backward[value] or value))
        level:append_text(string.format(" (%s)", backward[value] or "unknown"))
        if not backward[value] then
            level:add_proto_expert_info(e.invalid, "There is no such level")
        end
    else
        local designs = item:add(f.designs, word)
        local bits = { f.design_fixed, f.design_one, f.design_several, f.design_inter, f.design_all }
        for _, bit in ipairs(bits) do
            designs:add(bit, word)
        end
        item:append_text(string.format(": 0x%02x", value))
    end
    if range:len() > 4 then
        item:add(f.trailing, range(4))
        item:add_proto_expert_info(e.unusual, "Bytes behind the value are ignored")
    end
end

local function dissect_characteristic(c, tree, ids, found)
    local start = c.at
    local id, item = c:u32(tree, f.xchar, "a characteristic")
    local length = c:u32(item, f.xchar_length, "the length of a value")
    c:need(padded(length), item, "the value")
    check_padding(c, item, length)
    if found.seen[id] then
        item:add_proto_expert_info(e.invalid, "The same characteristic a second time")
    end
    found.seen[id] = true
    ids[#ids + 1] = id
    if length > 0 then
        dissect_value(id, c.tvb(c.at, length), item, found)
    else
        item:add_proto_expert_info(e.unusual, "No value")
    end
    c.at = c.at + padded(length)
    item:set_len(c.at - start)
end

local function dissect_characteristics(c, tree, found)
    local ids = {}
    local count, item = c:u32(tree, f.xchar_count, "the number of characteristics")
    for _ = 1, count do
        dissect_characteristic(c, item, ids, found)
    end
    return ids
end

-- A subset of `ids` by position: bit N mod 32 of word N div 32. Where a message does not carry the
-- set itself (ROPT_RESPXCH), `ids` is nil and positions are shown.
local function dissect_subset(c, tree, field, name, ids)
    local start, members = c.at, {}
    local item = tree:add(f.subset, c.tvb(start, math.min(c:left(), 4)))
    item:set_text(name)
    local count, counted = c:u32(item, f.subset_words, "the words of a subset")
    if count > MAX_SUBSET_WORDS then
        counted:add_proto_expert_info(e.invalid,
            string.format("More than %u words", MAX_SUBSET_WORDS))
    end
    for index = 0, count - 1 do
        local word, shown = c:u32(item, field, "a word of a subset")
        for bit = 0, 31 do
            if bit_is_set(word, bit) then
                local position = index * 32 + bit
                local id = ids and ids[position + 1]
                members[#members + 1] = id and (characteristics[id] or tostring(id))
                    or string.format("position %u", position)
                if ids and not id then
                    shown:add_proto_expert_info(e.unusual, "A bit for a value that is not there")
                end
            end
        end
    end
    item:set_len(c.at - start)
    item:set_text(string.format("%s: %s", name, #members > 0 and table.concat(members, ", ") or "none"))
end

local function dissect_operation(c, tree, message, operation)
    local found = { seen = {} }
    message.found = found
    if operation == INITXCH then
        local ids = dissect_characteristics(c, tree, found)
        dissect_subset(c, tree, f.nochg, "Will not change", ids)
    elseif operation == REQXCH then
        dissect_characteristics(c, tree, found)
    elseif operation == RESPXCH then
        dissect_subset(c, tree, f.done, "Done")
        dissect_subset(c, tree, f.rejected, "Rejected")
        dissect_subset(c, tree, f.pending, "Pending")
    else
        dissect_characteristic(c, tree, {}, found)
        local pendclr, item = c:u32(tree, f.pendclr, "whether a pending request ends")
        if pendclr > 1 then
            item:add_proto_expert_info(e.invalid, "An XDR bool is 0 or 1")
        end
    end
    message.whole = true
    if c:left() > 0 then
        tree:add(f.trailing, c.tvb(c.at, c:left()))
        tree:add_proto_expert_info(e.invalid, "Bytes behind the operation")
    end
end

local function dissect_optional(c, tree, message)
    dissect_direction(c, tree, message)
    local operation, item = c:u32(tree, f.operation, "the operation")
    message.operation = operation
    message.name = operations[operation] or string.format("operation %u", operation)
    local length = c:u32(tree, f.info_length, "the length of the information")
    c:need(padded(length), tree, "the information")
    check_padding(c, tree, length)
    if operation == REQXCH and message.direction == REPLY
        or operation == RESPXCH and message.direction == CALL then
        item:add_proto_expert_info(e.invalid, "ROPT_REQXCH is a Call, and ROPT_RESPXCH a Reply")
    end
    if operations[operation] then
        dissect_operation(cursor(c.tvb, c.at, c.at + length), tree, message, operation)
    else
        item:add_proto_expert_info(e.unusual, "An operation that xcharext does not define")
        if length > 0 then
            tree:add(f.info, c.tvb(c.at, length))
        end
    end
    c.at = c.at + padded(length)
    if c:left() > 0 then
        tree:add(f.trailing, c.tvb(c.at, c:left()))
        tree:add_proto_expert_info(e.invalid, "No RPC message belongs behind an operation")
        c.at = c.to
    end
end

-- Bytes behind a header to which nothing belongs.
local function dissect_trailing(c, tree)
    if c:left() > 0 then
        tree:add(f.trailing, c.tvb(c.at, c:left()))
        tree:add_proto_expert_info(e.unusual, "No RPC message belongs behind this header")
        c.at = c.to
    end
end

-- ietf-07, section 6.3.1.
local function dissect_ietf_error(c, tree, message)
    local code, item = c:u32(tree, f.error, "the error")
    message.direction = REPLY
    message.name = ietf_errors[code] or string.format("error %u", code)
    item:append_text(string.format(" (%s)", message.name))
    if not ietf_errors[code] then
        item:add_proto_expert_info(e.invalid, "There is no such error")
    elseif code == ERR_VERS then
        local low = c:u32(tree, f.vers_low, "the lowest version")
        local high = c:u32(tree, f.vers_high, "the highest version")
        message.name = string.format("%s (%u to %u)", message.name, low, high)
    elseif code == 6 or code == 7 then
        c:u32(tree, f.max_chunks, "the number of chunks")
    elseif code == 8 then
        c:u32(tree, f.max_segments, "the number of segments")
    elseif code == 9 then
        c:u32(tree, f.chunk_index, "the Write chunk")
        c:u32(tree, f.length_needed, "the length")
    elseif code == 10 then
        c:u32(tree, f.length_needed, "the length")
    end
    item:add_proto_expert_info(e.refused, message.name)
end

-- The value of a known property (ietf-07, section 5.2).
local function dissect_property_value(id, range, item)
    if range:len() < 4 then
        item:add_proto_expert_info(e.cut, "The value is shorter than its type")
        return
    end
    local word = range(0, 4)
    local value, used = word:uint(), 4
    if id == PROP_BRS then
        local name = reverse[value]
        local level = item:add(f.brs, word)
        level:append_text(string.format(" (%s)", name or "unknown"))
        item:append_text(": " .. (name or value))
        if not name then
            level:add_proto_expert_info(e.unusual, "A level that ietf-07 does not define")
        end
    elseif id == PROP_HOSTAUTH then
        if padded(value) > range:len() - 4 then
            item:add_proto_expert_info(e.cut, "The array is longer than the value")
            return
        end
        used = 4 + padded(value)
        if value > 0 then
            item:add(f.hostauth, range(4, value))
        end
        item:append_text(string.format(": %u bytes", value))
        check_padding(cursor(range:tvb(), 4, range:len()), item, value)
        if value > MAX_HOSTAUTH then
            item:add_proto_expert_info(e.invalid, string.format("More than %u bytes", MAX_HOSTAUTH))
        end
    else
        local fields = {
            [PROP_SBSIZ] = f.sbsiz, [PROP_RBSIZ] = f.rbsiz, [PROP_RSSIZ] = f.rssiz, [PROP_RCSIZ] = f.rcsiz,
        }
        item:add(fields[id], word)
        item:append_text(string.format(": %u", value))
    end
    if range:len() > used then
        item:add(f.trailing, range(used))
        item:add_proto_expert_info(e.unusual, "Bytes behind the value are ignored")
    end
end

local function dissect_property(c, tree, seen)
    local start = c.at
    local id, item = c:u32(tree, f.property, "a property")
    local length = c:u32(item, f.property_length, "the length of a value")
    c:need(padded(length), item, "the value")
    check_padding(c, item, length)
    if properties[id] and seen[id] then
        item:add_proto_expert_info(e.invalid, "The same property a second time")
    end
    seen[id] = true
    if length == 0 then
        item:append_text(": default")
    elseif properties[id] then
        dissect_property_value(id, c.tvb(c.at, length), item)
    else
        item:add(f.property_data, c.tvb(c.at, length))
    end
    c.at = c.at + padded(length)
    item:set_len(c.at - start)
end

local function dissect_properties(c, tree)
    local seen = {}
    local count, item = c:u32(tree, f.property_count, "the number of properties")
    if count > MAX_PROPERTIES then
        item:add_proto_expert_info(e.invalid, string.format("More than %u properties", MAX_PROPERTIES))
    end
    for _ = 1, count do
        dissect_property(c, item, seen)
    end
    dissect_trailing(c, tree)
end

-- A call of ietf-07 (sections 6.3.5 and 6.3.7). The segments of its Call chunk are the first of its Read segments.
local function dissect_ietf_call(c, tree, message)
    c:u32(tree, f.inv_handle, "the handle to invalidate")
    local body = {}
    if message.external then
        local item
        body, item = dissect_read_list(c, tree, f.call_chunk, "Call chunk")
        for _, segment in ipairs(body) do
            if segment.position ~= 0 then
                item:add_proto_expert_info(e.invalid, "The segments of a Call chunk have Position zero")
                break
            end
        end
        if #body == 0 then
            item:add_proto_expert_info(e.invalid, "A Call chunk has one or more segments")
        end
    end
    local items, item = dissect_read_list(c, tree, f.reads, "Read list")
    local last = 0
    for _, segment in ipairs(items) do
        if segment.position == 0 then
            item:add_proto_expert_info(e.invalid, "Only a Call chunk has Position zero")
        elseif segment.position < last then
            item:add_proto_expert_info(e.invalid, "The Positions of a Read list increase")
        end
        last = segment.position
        body[#body + 1] = segment
    end
    message.reads = body
    message.writes = dissect_write_list(c, tree)
    message.reply = dissect_reply_chunk(c, tree)
end

-- A reply of ietf-07 (sections 6.3.8 and 6.3.10).
local function dissect_ietf_reply(c, tree, message)
    message.reads = {}
    message.writes = dissect_write_list(c, tree)
    if message.external then
        message.reply = dissect_reply_chunk(c, tree)
        if not message.reply then
            tree:add_proto_expert_info(e.invalid, "An RDMA2_REPLY_EXTERNAL has its RPC message in a Reply chunk")
        end
    end
end

-- What follows the four words in ietf-07 (section 6.3).
local function dissect_ietf_body(c, tree, message, htype, item)
    if htype == ERROR then
        dissect_ietf_error(c, tree, message)
    elseif htype == GRANT then
        if message.xid ~= 0 then
            tree:add_proto_expert_info(e.unusual, "The XID of an RDMA2_GRANT is zero")
        end
        dissect_trailing(c, tree)
    elseif htype == CONNPROP_MIDDLE or htype == CONNPROP_FINAL then
        dissect_properties(c, tree)
    elseif htype == CALL_EXTERNAL or htype == CALL_INLINE then
        message.direction = CALL
        message.external, message.inline = htype == CALL_EXTERNAL, htype == CALL_INLINE
        dissect_ietf_call(c, tree, message)
    elseif htype == REPLY_EXTERNAL or htype == REPLY_INLINE then
        message.direction = REPLY
        message.external, message.inline = htype == REPLY_EXTERNAL, htype == REPLY_INLINE
        dissect_ietf_reply(c, tree, message)
    elseif htype == CALL_MIDDLE or htype == REPLY_MIDDLE then
        message.direction = htype == CALL_MIDDLE and CALL or REPLY
        c:u32(tree, f.remaining, "the number of bytes that remain")
        message.is_part = true
    else
        item:add_proto_expert_info(e.invalid, "There is no such header type")
        c.at = c.to
    end
    if message.external then
        dissect_trailing(c, tree)
    end
end

local function dissect_cel_body(c, tree, message, procedure, item, layout)
    if procedure == MSG or procedure == NOMSG then
        dissect_chunks(c, tree, message, layout)
    elseif procedure == ERROR then
        dissect_error(c, tree, message)
    elseif procedure == OPTIONAL then
        dissect_optional(c, tree, message)
    else
        item:add_proto_expert_info(e.invalid, "There is no such procedure")
        c.at = c.to
    end
end

-- The dialect that a message shows by itself, or nil if both dialects have it.
local function shown_dialect(tvb)
    local procedure = tvb(12, 4):uint()
    if procedure == MSG or procedure == NOMSG then
        return CEL_01
    elseif procedure == ERROR then
        local code = tvb:len() >= MIN_HEADER and tvb(PREFIX, 4):uint() or 0
        return not errors[code] and ietf_errors[code] and IETF_07 or nil
    elseif procedure == OPTIONAL then
        -- The same number as RDMA2_GRANT, which is the prefix alone.
        if tvb:len() == PREFIX then
            return IETF_07
        end
        return tvb:len() >= MIN_OPTIONAL and CEL_01 or nil
    end
    return htypes[procedure] and IETF_07 or nil
end

-- Reads a header into the tree. Returns what it says, and where the Payload stream begins; nil for
-- the latter if the header is cut or unreadable.
local function dissect_header(tvb, tree, dialect, layout)
    local message = { dialect = dialect }
    local c = cursor(tvb, 0, tvb:len())
    message.xid = c:u32(tree, f.xid)
    c:u32(tree, f.version)
    local credits, credits_item = c:u32(tree, f.credits)
    local procedure, item = c:u32(tree, f.procedure)
    message.procedure = procedure
    local names = dialect == IETF_07 and htypes or procedures
    item:append_text(string.format(" (%s)", names[procedure] or "unknown"))
    tree:add(f.dialect, dialects[dialect]):set_generated(true)
    local read, why = pcall(function()
        if dialect == IETF_07 then
            dissect_ietf_body(c, tree, message, procedure, item)
        else
            dissect_cel_body(c, tree, message, procedure, item, layout)
        end
    end)
    if not read and why ~= CUT then
        error(why, 0)
    end
    if message.direction and dialect == CEL_01 then
        credits_item:append_text(message.direction == CALL and " (requested)" or " (granted)")
        if message.direction == REPLY and credits == 0 and procedure ~= ERROR then
            credits_item:add_proto_expert_info(e.unusual, "A grant of zero stops the peer")
        end
    end
    return message, read and c.at or nil
end

local function title(message)
    local is_cel = message.dialect == CEL_01
    local name = (is_cel and procedures or htypes)[message.procedure]
    local parts = { name or string.format("procedure %u", message.procedure) }
    if message.name then
        parts[#parts + 1] = message.name
    end
    -- The header types of ietf-07 tell the direction.
    if is_cel and message.procedure ~= ERROR and directions[message.direction] then
        parts[#parts + 1] = directions[message.direction]
    end
    return string.format("%s, XID 0x%08x", table.concat(parts, " "), message.xid)
end

-- Memory: the data of RDMA Writes and of Read Responses, as pieces by handle of its owner.

local function slot(owner, handle)
    return owner .. "#" .. handle
end

local function remember(connection, owner, handle, offset, data)
    if not proto.prefs.reassemble or kept + #data > MAX_KEPT then
        return
    end
    kept = kept + #data
    local key = slot(owner, handle)
    local pieces = connection.memory[key] or {}
    connection.memory[key] = pieces
    pieces[#pieces + 1] = { offset = offset, data = data }
end

local function forget(connection, owner, handle)
    local key = slot(owner, handle)
    for _, piece in ipairs(connection.memory[key] or {}) do
        kept = kept - #piece.data
    end
    connection.memory[key] = nil
end

-- The bytes of one segment, or nil if some of them did not pass.
local function bytes_of(connection, owner, segment)
    if segment.length == 0 then
        return ""
    end
    local placed = {}
    for _, piece in ipairs(connection.memory[slot(owner, segment.handle)] or {}) do
        local data, at = piece.data, 0
        if piece.offset >= segment.offset then
            at = (piece.offset - segment.offset):tonumber()
        else
            data = data:sub((segment.offset - piece.offset):tonumber() + 1)
        end
        if #data > 0 and at < segment.length then
            placed[#placed + 1] = { at = at, data = data }
        end
    end
    table.sort(placed, function(one, other) return one.at < other.at end)
    local parts, length = {}, 0
    for _, piece in ipairs(placed) do
        if piece.at > length then
            return nil
        end
        local new = piece.data:sub(length - piece.at + 1, segment.length - piece.at)
        parts[#parts + 1] = new
        length = length + #new
    end
    return length == segment.length and table.concat(parts) or nil
end

local function chunk_length(segments)
    local length = 0
    for _, segment in ipairs(segments) do
        length = length + segment.length
    end
    return length
end

local function bytes_of_chunk(connection, owner, segments)
    if chunk_length(segments) > MAX_MESSAGE then
        return nil
    end
    local parts = {}
    for _, segment in ipairs(segments) do
        local bytes = bytes_of(connection, owner, segment)
        if not bytes then
            return nil
        end
        parts[#parts + 1] = bytes
    end
    return table.concat(parts)
end

-- The whole RPC call: the inline part with each Read chunk at its Position (RFC 8166, section 3.4.5),
-- or nil as long as data is missing.
local function whole_call(connection, call)
    if chunk_length(call.reads) > MAX_MESSAGE then
        return nil
    end
    local chunks, by_position = {}, {}
    for _, segment in ipairs(call.reads) do
        local chunk = by_position[segment.position]
        if not chunk then
            chunk = { position = segment.position, segments = {} }
            by_position[segment.position] = chunk
            chunks[#chunks + 1] = chunk
        end
        chunk.segments[#chunk.segments + 1] = segment
    end
    table.sort(chunks, function(one, other) return one.position < other.position end)
    local parts, length, inline_at = {}, 0, 1
    for _, chunk in ipairs(chunks) do
        local data = bytes_of_chunk(connection, call.owner, chunk.segments)
        if not data then
            return nil
        end
        local before = chunk.position - length
        if before < 0 or inline_at + before - 1 > #call.inline then
            return nil
        end
        parts[#parts + 1] = call.inline:sub(inline_at, inline_at + before - 1)
        parts[#parts + 1] = data .. string.rep("\0", padded(#data) - #data)
        inline_at = inline_at + before
        length = chunk.position + padded(#data)
    end
    parts[#parts + 1] = call.inline:sub(inline_at)
    return table.concat(parts)
end

-- The whole RPC reply: the Reply chunk, or the inline part with the one result that went by Write
-- chunk. Only the upper layer knows where a result belongs; in NFS version 3 (RFC 8267, section
-- 4) it is the last item of a reply. nil if data is missing; false if nothing moved by chunk.
local function whole_reply(connection, message, requester, inline)
    local chunks = {}
    for _, chunk in ipairs(message.writes) do
        if chunk_length(chunk) > 0 then
            chunks[#chunks + 1] = chunk
        end
    end
    if message.external then
        return message.reply and bytes_of_chunk(connection, requester, message.reply)
    elseif #chunks == 0 then
        return false
    elseif #chunks > 1 then
        return nil
    end
    local data = bytes_of_chunk(connection, requester, chunks[1])
    return data and inline .. data .. string.rep("\0", padded(#data) - #data)
end

local function forget_chunks(connection, owner, message)
    for _, chunk in ipairs(message.writes or {}) do
        for _, segment in ipairs(chunk) do
            forget(connection, owner, segment.handle)
        end
    end
    for _, segment in ipairs(message.reply or {}) do
        forget(connection, owner, segment.handle)
    end
end

local function keep(whole)
    if not whole or kept + #whole > MAX_KEPT then
        return nil
    end
    kept = kept + #whole
    return whole
end

-- Hands an RPC message to Wireshark. Its dissectors mark what is malformed in the tree, and raise an
-- error here that adds nothing.
local function dissect_rpc(tvb, pinfo, root)
    if tvb:len() > 0 then
        pcall(rpc.call, rpc, tvb, pinfo, root)
    end
end

local function dissect_whole(whole, name, pinfo, root)
    dissect_rpc(ByteArray.new(whole, true):tvb(name), pinfo, root)
end

local function checks_of_rpc(tvb, at, tree, message)
    if tvb:len() - at < 8 then
        tree:add_proto_expert_info(e.invalid, "An RPC message belongs behind this header")
        return
    end
    if tvb(at, 4):uint() ~= message.xid then
        tree:add_proto_expert_info(e.invalid, "The RPC message has another XID")
    end
    if tvb(at + 4, 4):uint() ~= message.direction then
        tree:add_proto_expert_info(e.invalid, "The RPC message goes the other way")
    end
end

-- What the two first messages of a connection agree on (docs/design/version-two.md, "Remote Invalidation
-- Designs"): the answer of the server has exactly one of the designs that the client offered.
local function learn_layout(connection, message, source, destination)
    if message.operation ~= INITXCH or not message.whole then
        return
    end
    local designs = message.found[XCHAR_DESIGNS]
    if message.direction == CALL then
        connection.offered[source] = connection.offered[source] or designs or 0
        return
    end
    local offered = connection.offered[destination]
    if not offered or not designs then
        return
    end
    if designs == 0x08 and bit_is_set(offered, 3) then
        connection.layout = LAYOUT_ONE
    elseif designs == 0x10 and bit_is_set(offered, 4) then
        connection.layout = LAYOUT_SEVERAL
    elseif designs == 0x40 and bit_is_set(offered, 6) then
        connection.layout = LAYOUT_SEVERAL
    end
end

-- The parts of an RPC message (ietf-07, section 6.6.2). Keeps a part; returns the stream of a whole message
-- with the parts before it.
local function put_together(connection, message, source, inline, record)
    local key = slot(source, message.direction .. ":" .. message.xid)
    local parts = connection.continued[key]
    if message.is_part then
        parts = parts or { length = 0 }
        connection.continued[key] = parts
        parts.length = parts.length + #inline
        local part = parts.length <= MAX_MESSAGE and keep(inline)
        if part then
            parts[#parts + 1] = part
        else
            -- Of a message that is too long, nothing is put together.
            parts.is_short = true
        end
        return inline
    end
    connection.continued[key] = nil
    if not parts then
        return inline
    end
    record.continues = true
    for _, part in ipairs(parts) do
        kept = kept - #part
    end
    return parts.is_short and "" or table.concat(parts) .. inline
end

-- The first pass over a message: what later passes have to know of those before it.
local function first_pass(connection, message, frame, source, destination, inline, record)
    if message.direction == REPLY then
        record.request_in = connection.calls[slot(destination, message.xid)]
    elseif message.direction == CALL then
        connection.calls[slot(source, message.xid)] = frame
    end
    if inline and (message.is_part or message.inline) then
        inline = put_together(connection, message, source, inline, record)
    end
    if message.operation then
        learn_layout(connection, message, source, destination)
    elseif not inline or not message.reply and not message.writes then
        return
    elseif message.direction == CALL and #message.reads > 0 then
        local call = {
            reads = message.reads, owner = source, inline = inline, record = record, frame = frame,
        }
        for _, segment in ipairs(message.reads) do
            connection.waiting[slot(source, segment.handle)] = call
        end
        record.waits = true
    elseif message.direction == REPLY then
        local whole = whole_reply(connection, message, destination, inline)
        record.missing = whole == nil
        record.whole = keep(whole)
        forget_chunks(connection, destination, message)
    end
    if record.continues and not record.whole and not record.waits then
        record.whole = keep(inline)
    end
end

local function dissect_payload(tvb, at, pinfo, root, tree, message, record)
    if record.waits then
        if record.reassembled_in then
            tree:add(f.reassembled_in, record.reassembled_in):set_generated(true)
        end
        return
    end
    if record.whole then
        dissect_whole(record.whole, "RPC message with chunk data", pinfo, root)
        return
    end
    if record.missing then
        tree:add_proto_expert_info(e.missing,
            "Not all data of its chunks is in the capture: the RPC message ends early")
    end
    if message.is_part and at < tvb:len() then
        tree:add(f.part, tvb(at))
    elseif message.inline and at < tvb:len() then
        dissect_rpc(tvb(at):tvb(), pinfo, root)
    end
end

-- Columns of the packet list: what an earlier message of the frame has put there stays.
local shown = { frame = 0, place = 0 }

local function begin_columns(pinfo, place)
    if shown.frame == pinfo.number and shown.place < place then
        pinfo.cols.info:set("; ")
        pinfo.cols.info:fence()
    end
    shown = { frame = pinfo.number, place = place }
    pinfo.cols.protocol = "RPCoRDMA"
end

-- One message of version two: `tvb` has all of it.
local function dissect_message(tvb, pinfo, root, connection, source, destination, record)
    local tree = root:add(proto, tvb())
    begin_columns(pinfo, record.place)
    if not record.layout then
        local chosen = proto.prefs.layout
        record.layout = chosen == LAYOUT_AUTOMATIC and connection.layout or chosen
        chosen = proto.prefs.dialect
        if chosen == DIALECT_AUTOMATIC then
            connection.dialect = connection.dialect or shown_dialect(tvb)
            chosen = connection.dialect or CEL_01
        end
        record.dialect = chosen
    end
    local message, at = dissect_header(tvb, tree, record.dialect, record.layout)
    local line = title(message)
    tree:append_text(", " .. line)
    pinfo.cols.info = line
    if at then
        tree:set_len(at)
    end
    if not record.passed then
        record.passed = true
        local inline = at and tvb:raw(at, tvb:len() - at)
        first_pass(connection, message, pinfo.number, source, destination, inline, record)
    end
    if at and message.inline and not record.continues then
        checks_of_rpc(tvb, at, tree, message)
    end
    if record.request_in then
        tree:add(f.request_in, record.request_in):set_generated(true)
    end
    if at and message.direction then
        dissect_payload(tvb, at, pinfo, root, tree, message, record)
    end
    pinfo.cols.info:fence()
end

local function looks_like_version_two(tvb)
    if tvb:len() < PREFIX or tvb(4, 4):uint() ~= VERSION then
        return false
    end
    local procedure = tvb(12, 4):uint()
    if tvb:len() < MIN_HEADER then
        return procedure == GRANT and tvb(0, 4):uint() == 0
    end
    local next_word = tvb(PREFIX, 4):uint()
    if procedure == ERROR then
        return errors[next_word] ~= nil or ietf_errors[next_word] ~= nil
    elseif procedures[procedure] then
        return directions[next_word] ~= nil
    elseif procedure == CONNPROP_MIDDLE or procedure == CONNPROP_FINAL then
        return next_word <= MAX_PROPERTIES
    elseif procedure == REPLY_EXTERNAL or procedure == REPLY_INLINE then
        return next_word <= 1
    end
    return htypes[procedure] ~= nil
end

-- A Send. A message may have several DDP segments; Wireshark puts them together since version 4.4,
-- before that this does.
local function dissect_send(tvb, pinfo, root, stream, source, destination, record)
    local msn, mo = last_value(w.msn), last_value(w.mo)
    local last, ulpdu = last_value(w.last), last_value(w.ulpdu)
    local connection = connections[stream]
    local is_whole = tvb:len() ~= (ulpdu or 0) - UNTAGGED_HEADER or (last and mo == 0)
    local is_first = is_whole or mo == 0
    if record.parts == nil and is_first then
        local is_ours = connection and tvb:len() >= PREFIX and tvb(4, 4):uint() == VERSION
        if not is_ours and not looks_like_version_two(tvb) then
            return false
        end
        connection = connection or connection_of(stream)
    end
    if not connection then
        return false
    end
    if is_whole then
        dissect_message(tvb, pinfo, root, connection, source, destination, record)
        return true
    end
    if not record.parts then
        local key = slot(source, msn)
        local parts = connection.parts[key]
        if is_first or not parts or parts.length ~= mo then
            if not is_first then
                return false
            end
            parts = { length = 0 }
            connection.parts[key] = parts
        end
        local data = tvb:raw(0, tvb:len())
        if parts.length + #data > MAX_MESSAGE then
            connection.parts[key] = nil
            return false
        end
        parts[#parts + 1] = data
        parts.length = parts.length + #data
        record.parts = parts
        if last then
            parts.frame = pinfo.number
            record.message = keep(table.concat(parts))
            connection.parts[key] = nil
        end
    end
    local item = root:add(proto, tvb())
    item:add(f.part, tvb())
    if record.message then
        local whole = ByteArray.new(record.message, true):tvb("RPC-over-RDMA message")
        dissect_message(whole, pinfo, root, connection, source, destination, record)
    elseif record.parts.frame then
        item:add(f.reassembled_in, record.parts.frame):set_generated(true)
    end
    return true
end

-- The data of an RDMA Write or a Read Response.
local function dissect_data(tvb, pinfo, root, connection, opcode, source, destination, record)
    if not record.passed then
        record.passed = true
        local handle, offset = last_value(w.stag), last_value(w.to)
        local data = tvb:raw(0, tvb:len())
        if opcode == RDMA_WRITE then
            remember(connection, destination, handle, offset, data)
        else
            for _, sink in ipairs(connection.sinks[slot(destination, handle)] or {}) do
                if offset >= sink.offset and (offset - sink.offset):tonumber() < sink.size then
                    local at = sink.source_offset + (offset - sink.offset)
                    remember(connection, source, sink.source, at, data)
                    local call = connection.waiting[slot(source, sink.source)]
                    local whole = call and not call.is_whole and whole_call(connection, call)
                    if whole then
                        call.is_whole = true
                        call.record.reassembled_in = pinfo.number
                        record.whole, record.header_in = keep(whole), call.frame
                        for _, segment in ipairs(call.reads) do
                            connection.waiting[slot(source, segment.handle)] = nil
                            forget(connection, source, segment.handle)
                        end
                    end
                    break
                end
            end
        end
    end
    local name = opcode == RDMA_WRITE and "RDMA Write" or "RDMA Read Response"
    local item = root:add(proto, tvb())
    local line = string.format("%s of %u bytes", name, tvb:len())
    item:append_text(", " .. line)
    item:add(f.data, tvb())
    begin_columns(pinfo, record.place)
    pinfo.cols.info = line
    if record.header_in then
        item:add(f.header_in, record.header_in):set_generated(true)
    end
    if record.whole then
        dissect_whole(record.whole, "RPC call with chunk data", pinfo, root)
    end
    pinfo.cols.info:fence()
end

local function remember_read(connection, source)
    local sink = {
        offset = last_value(w.sink_to),
        size = last_value(w.read_size),
        source = last_value(w.source_stag),
        source_offset = last_value(w.source_to),
    }
    local handle = last_value(w.sink_stag)
    if handle and sink.offset and sink.size and sink.source and sink.source_offset then
        local key = slot(source, handle)
        local sinks = connection.sinks[key] or {}
        connection.sinks[key] = sinks
        -- The newest first: an end uses its sink memory again.
        table.insert(sinks, 1, sink)
    end
end

local function dissect_ddp(tvb, pinfo, root)
    local stream = last_value(w.stream)
    local opcode, place = last_value(w.opcode)
    -- A packet that was cut when it was captured cannot be decoded further.
    if not stream or not opcode or tvb:len() ~= tvb:reported_len() then
        return false
    end
    local key = pinfo.number .. ":" .. place
    local record = records[key] or { place = place }
    local source = tostring(pinfo.src) .. ":" .. pinfo.src_port
    local destination = tostring(pinfo.dst) .. ":" .. pinfo.dst_port
    local connection = connections[stream]
    local is_ours = false
    if SENDS[opcode] then
        is_ours = dissect_send(tvb, pinfo, root, stream, source, destination, record)
    elseif connection and (opcode == RDMA_WRITE or opcode == RDMA_READ_RESPONSE) and tvb:len() > 0 then
        dissect_data(tvb, pinfo, root, connection, opcode, source, destination, record)
        is_ours = true
    elseif connection and opcode == RDMA_READ_REQUEST and not record.passed then
        record.passed = true
        remember_read(connection, source)
        records[key] = record
    end
    if is_ours then
        records[key] = record
    end
    return is_ours
end

function proto.dissector(tvb, pinfo, root)
    return 0
end

proto:register_heuristic("iwarp_ddp_rdmap", dissect_ddp)

-- Private data of RPC-over-RDMA version one (RFC 8797, section 4), in MPA's Request and Reply. It is a
-- postdissector, as Wireshark's dissector of MPA has no table for what it finds there.

local private = Proto("rpcrdma_cm", "RPC-over-RDMA private data (RFC 8797)")

local MAGIC = 0xf6ab0e18
local FORMAT_VERSION = 1
local PRIVATE_LENGTH = 8
-- Bytes of the enhanced setup (RFC 6581, section 9) before it: in revision 2 of MPA, if S is set. Wireshark has S
-- among the reserved bits of RFC 5044.
local ENHANCED_LENGTH = 4
local FLAG_S = 0x10
-- Announces version two as cel-01 has it (docs/design/version-two.md).
local ANNOUNCEMENTS = { rpc2ce01 = "cel-01", rpc2ie07 = "ietf-07" }
local ANNOUNCEMENT_LEN = 8

local p = {
    magic = ProtoField.uint32("rpcrdma_cm.magic", "Format identifier", base.HEX),
    version = ProtoField.uint8("rpcrdma_cm.version", "Format version"),
    flags = ProtoField.uint8("rpcrdma_cm.flags", "Flags", base.HEX),
    reserved = ProtoField.uint8("rpcrdma_cm.reserved", "Reserved", base.HEX, nil, 0xfe),
    invalidation = ProtoField.bool(
        "rpcrdma_cm.remote_invalidation", "Supports remote invalidation (R)", 8, nil, 0x01),
    send_size = ProtoField.uint32("rpcrdma_cm.send_size", "Largest message it sends (bytes)"),
    receive_size = ProtoField.uint32("rpcrdma_cm.receive_size", "Largest message it receives (bytes)"),
    dialect = ProtoField.string("rpcrdma_cm.version_two", "Announces version two"),
}
private.fields = {
    p.magic, p.version, p.flags, p.reserved, p.invalidation, p.send_size, p.receive_size, p.dialect,
}

local pe = {
    unknown = ProtoExpert.new(
        "rpcrdma_cm.unknown_version", "Unknown version of the format: ignored by receivers",
        expert.group.PROTOCOL, expert.severity.WARN),
    reserved = ProtoExpert.new(
        "rpcrdma_cm.reserved_bits", "Reserved bits are set (RFC 8797, section 4)",
        expert.group.PROTOCOL, expert.severity.WARN),
}
private.experts = { pe.unknown, pe.reserved }

-- The place of the private data, which may begin at any byte (RFC 8797, section 5.2): the first of a version that is
-- known, or else the first at all.
local function find_private(range, from)
    local unknown
    for at = from, range:len() - PRIVATE_LENGTH do
        if range(at, 4):uint() == MAGIC then
            if range(at + 4, 1):uint() == FORMAT_VERSION then
                return at
            end
            unknown = unknown or at
        end
    end
    return unknown
end

local function add_private(range, at, root)
    local tree = root:add(private, range(at, PRIVATE_LENGTH))
    tree:add(p.magic, range(at, 4))
    tree:add(p.version, range(at + 4, 1))
    if range(at + 4, 1):uint() ~= FORMAT_VERSION then
        tree:add_proto_expert_info(pe.unknown)
        return
    end
    local flags = tree:add(p.flags, range(at + 5, 1))
    local reserved = flags:add(p.reserved, range(at + 5, 1))
    if range(at + 5, 1):uint() > 1 then
        reserved:add_proto_expert_info(pe.reserved)
    end
    flags:add(p.invalidation, range(at + 5, 1))
    tree:add(p.send_size, range(at + 6, 1), (range(at + 6, 1):uint() + 1) * 1024)
    tree:add(p.receive_size, range(at + 7, 1), (range(at + 7, 1):uint() + 1) * 1024)
end

function private.dissector(tvb, pinfo, root)
    local revisions, reserved = { w.revision() }, { w.reserved() }
    for index, field in ipairs({ w.private() }) do
        local range = field.range
        local revision = revisions[index] and revisions[index].value
        local flags = reserved[index] and reserved[index].value or 0
        local enhanced = revision == 2 and math.floor(flags / FLAG_S) % 2 == 1
        if range then
            local from = enhanced and ENHANCED_LENGTH or 0
            local at = find_private(range, from)
            if at then
                add_private(range, at, root)
            end
            for place = from, range:len() - ANNOUNCEMENT_LEN do
                local announced = ANNOUNCEMENTS[range(place, ANNOUNCEMENT_LEN):string()]
                if announced then
                    root:add(p.dialect, range(place, ANNOUNCEMENT_LEN), announced)
                    break
                end
            end
        end
    end
end

register_postdissector(private)

-- Wireshark up to 4.0 calls heuristic dissectors on iWARP only where it builds a tree, and the fields of lower
-- layers are in the tree. Without this its first pass over a file would build none.
local tree_wanted = Listener.new("frame", nil, true)

function tree_wanted.packet() end
