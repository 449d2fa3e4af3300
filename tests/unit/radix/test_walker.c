/* The walker sees what it says it sees: one fault at a time, made on purpose, must give its reason. */
#include "radix/internal.h"
#include "tests/unit/radix/treekit.h"

static struct {
    struct esp_tree *tree;
    uint32_t a, b, c, d; /* "abc" and "abd", cached, unreferenced */
    uint32_t x, y;       /* below a: x cached and leased, y pending below it */
    uint32_t q;          /* in another namespace */
    uint32_t private_page;
} f;

/*   m: a(refs 1) ─┬─ b ─┬─ c      n: q
 *                 │     └─ d
 *                 └─ x(1) ── y(1, pending)        one private page, the rest free */
static void make(void)
{
    f.tree = kit_tree(16, 128);
    struct esp_ns_id m = kit_ns(f.tree, "m"), n = kit_ns(f.tree, "n");
    f.c = kit_leave(f.tree, m, "abc", ESP_CLASS_NORMAL).v;
    f.d = kit_leave(f.tree, m, "abd", ESP_CLASS_NORMAL).v;
    f.q = kit_leave(f.tree, n, "q", ESP_CLASS_RETURN).v;
    struct esp_node_id x = kit_path(f.tree, m, "ax");
    f.x = x.v;
    f.y = kit_add(f.tree, m, x, 'y', ESP_PAGE_PENDING).v;
    f.b = f.tree->nodes[f.c].parent;
    f.a = f.tree->nodes[f.b].parent;
    struct esp_page_id page;
    CHECK(esp_tree_alloc(f.tree, 1, &page) == ESP_OK, "alloc");
    f.private_page = page.v;
    CHECK(esp_tree_pin_reserve(f.tree, 1), "budget for a pin");
    CHECK(esp_tree_pin(f.tree, esp_tree_id(f.tree, f.a), 1000, 1) == 1, "one page pinned");
}

static struct esp_tree_node *at(uint32_t idx)
{
    return &f.tree->nodes[idx];
}

static void unknown_state(void)
{
    at(f.private_page)->state = 9;
}
static void unknown_class(void)
{
    at(f.a)->class = ESP_CLASSES;
}
static void free_page_in_use(void)
{
    at(f.private_page)->state = ESP_PAGE_FREE;
}
static void free_page_missing(void)
{
    esp_tree_list_remove(f.tree, f.tree->lists[ESP_TREE_LIST_FREE].head);
}
static void leased_on_a_list(void)
{
    esp_tree_list_add(f.tree, ESP_CLASS_NORMAL, f.x);
}
static void wrong_class_list(void)
{
    esp_tree_list_remove(f.tree, f.c);
    esp_tree_list_add(f.tree, ESP_CLASS_RETURN, f.c);
}
static void private_with_refs(void)
{
    at(f.private_page)->refs = 1;
}
static void private_with_children(void)
{
    at(f.private_page)->n_children = 1;
}
static void pending_unreferenced(void)
{
    at(f.y)->refs = 0;
}
static void namespace_unused(void)
{
    at(f.c)->ns = 5;
}
static void parent_not_in_tree(void)
{
    at(f.c)->parent = f.private_page;
}
static void parent_of_other_namespace(void)
{
    at(f.c)->parent = f.q;
}
static void cached_below_pending(void)
{
    esp_tree_page_set(f.tree, f.x, ESP_PAGE_PENDING);
    esp_tree_page_set(f.tree, f.y, ESP_PAGE_CACHED);
}
static void wrong_depth(void)
{
    at(f.c)->depth++;
}
static void wrong_hash(void)
{
    at(f.c)->tokens[7]++;
}
static struct esp_tree_cell *cell_of(uint32_t idx)
{
    struct esp_tree_cell *cell = f.tree->cells;
    while (cell->idx != idx) {
        cell++;
    }
    return cell;
}
static void index_entry_lost(void)
{
    esp_tree_index_remove(f.tree, f.c);
}
static void index_entry_twice(void)
{
    esp_tree_index_add(f.tree, f.c);
}
static void index_wrong_tag(void)
{
    cell_of(f.c)->tag++;
}
static void index_of_free_page(void)
{
    cell_of(f.c)->idx = f.private_page;
}
static void index_out_of_reach(void)
{
    struct esp_tree_cell moved = *cell_of(f.c), *at = f.tree->cells;
    esp_tree_index_remove(f.tree, f.c);
    /* A place that does not follow from its hash: behind an empty cell. */
    uint32_t home = moved.tag & f.tree->cell_mask, cell = home + f.tree->cell_mask;
    while (at[cell & f.tree->cell_mask].idx != ESP_TREE_NIL) {
        cell--;
    }
    at[cell & f.tree->cell_mask] = moved;
}
static void equal_siblings(void)
{
    esp_tree_index_remove(f.tree, f.c);
    memcpy(at(f.c)->tokens, at(f.d)->tokens, sizeof at(f.c)->tokens);
    at(f.c)->hash = at(f.d)->hash;
    esp_tree_index_add(f.tree, f.c);
}
/* Parents first: indexes a node under the hash its path has now. */
static void rehash(uint32_t idx)
{
    esp_tree_index_remove(f.tree, idx);
    at(idx)->hash = esp_tree_hash_page(
        f.tree, at(idx)->depth == 1 ? f.tree->spaces[at(idx)->ns].hash : at(at(idx)->parent)->hash, at(idx)->tokens);
    esp_tree_index_add(f.tree, idx);
}
static void child_not_in_tree(void)
{
    at(f.c)->child_head = f.private_page;
}
static void child_of_another(void)
{
    at(f.c)->child_head = f.y;
}
static void sibling_link_back(void)
{
    at(f.c)->sibling_prev = f.x;
}
static void sibling_order(void)
{
    at(f.d)->use_seq = 0;
}
static void children_miscounted(void)
{
    at(f.b)->n_children++;
}
static void class_counts(void)
{
    at(f.b)->n_children_in[ESP_CLASS_TAIL]++;
}
static void refs_not_closed_upward(void)
{
    at(f.y)->refs = 2;
}
static void list_of_another(void)
{
    at(f.tree->lists[ESP_CLASS_NORMAL].tail)->list_next = f.tree->lists[ESP_CLASS_RETURN].head;
}
static void list_link_back(void)
{
    at(f.tree->lists[ESP_TREE_LIST_FREE].tail)->list_prev = ESP_TREE_NIL;
}
static void list_circle(void)
{
    at(f.tree->lists[ESP_TREE_LIST_FREE].tail)->list_next = f.tree->lists[ESP_TREE_LIST_FREE].head;
}
static void list_tail(void)
{
    f.tree->lists[ESP_TREE_LIST_FREE].tail = f.tree->lists[ESP_TREE_LIST_FREE].head;
}
static void list_count(void)
{
    f.tree->lists[ESP_CLASS_RETURN].n++;
}
static void list_order(void)
{
    uint32_t idx = f.tree->lists[ESP_CLASS_NORMAL].head;
    esp_tree_list_remove(f.tree, idx);
    esp_tree_list_add(f.tree, ESP_CLASS_NORMAL, idx);
}
static void used_after_parent(void)
{
    at(f.b)->use_seq = at(f.d)->use_seq;
}
static void namespace_bytes(void)
{
    f.tree->spaces[0].bytes[8]++;
}
static void equal_namespaces(void)
{
    struct esp_tree_ns *one = &f.tree->spaces[0], *two = &f.tree->spaces[1];
    uint32_t *buckets = f.tree->space_buckets;
    buckets[one->hash.low & (ESP_TREE_NS_BUCKETS - 1)] = buckets[two->hash.low & (ESP_TREE_NS_BUCKETS - 1)] =
        ESP_TREE_NIL;
    one->bytes[8] = two->bytes[8];
    one->hash = two->hash;
    one->bucket_next = 1;
    two->bucket_next = ESP_TREE_NIL;
    buckets[one->hash.low & (ESP_TREE_NS_BUCKETS - 1)] = 0;
    uint32_t nodes[] = {f.a, f.b, f.c, f.d, f.x, f.y};
    for (int idx = 0; idx < 6; idx++) { /* give the nodes the hashes of their new namespace */
        rehash(nodes[idx]);
    }
}
static void namespace_chain(void)
{
    f.tree->spaces[0].bucket_next = 0;
}
static void namespace_chain_short(void)
{
    f.tree->space_buckets[f.tree->spaces[1].hash.low & (ESP_TREE_NS_BUCKETS - 1)] = ESP_TREE_NIL;
}
static void namespace_counts(void)
{
    f.tree->spaces[0].n_nodes++;
}
static void namespace_root_lost(void)
{
    f.tree->spaces[1].child_head = ESP_TREE_NIL;
}
static void state_counts(void)
{
    f.tree->n_in_state[ESP_PAGE_CACHED]++;
}
static void referenced_count(void)
{
    f.tree->n_referenced--;
}
static void pin_of_another(void)
{
    at(f.c)->pin = at(f.a)->pin;
}
static void pins_not_closed_upward(void)
{
    at(f.a)->pins++;
}
static void pin_counts(void)
{
    f.tree->n_pins++;
}
static void pinned_pages_count(void)
{
    f.tree->n_pinned++;
}
static void pin_over_budget(void)
{
    f.tree->n_pin_reserved = 8;
}
static void pinned_below_its_class(void)
{
    esp_tree_release(f.tree, esp_tree_id(f.tree, f.y), ESP_CLASS_TAIL); /* y was pending and goes */
    esp_tree_list_remove(f.tree, f.a);
    esp_tree_list_add(f.tree, ESP_CLASS_NORMAL, f.a);
}
static void pinned_pending(void)
{
    at(f.y)->state = ESP_PAGE_PENDING;
    at(f.y)->pins = 1;
    at(f.y)->pin = 2;
    at(f.x)->pins = 1;
    at(f.a)->pins++;
    f.tree->pins[1].node = f.y;
}
static void shared_not_closed_upward(void)
{
    at(f.c)->session = 7;
    at(f.c)->shared = true;
}
static void session_not_closed_upward(void)
{
    at(f.c)->session = 7;
}
static void orphans(void)
{
    at(f.a)->child_head = f.x;
    at(f.x)->sibling_next = ESP_TREE_NIL;
    at(f.a)->n_children = 1;
    memset(at(f.a)->n_children_in, 0, sizeof at(f.a)->n_children_in);
}

static const struct {
    const char *name;
    void (*make_fault)(void);
    const char *reason; /* a part of it */
} faults[] = {
    {"unknown_state", unknown_state, "state 9 does not exist"},
    {"unknown_class", unknown_class, "class 4 does not exist"},
    {"free_page_in_use", free_page_in_use, "belongs on 4"},
    {"free_page_missing", free_page_missing, "belongs on 4"},
    {"leased_on_a_list", leased_on_a_list, "on list 1, belongs on 255"},
    {"wrong_class_list", wrong_class_list, "on list 2, belongs on 1"},
    {"private_with_refs", private_with_refs, "private, yet with references"},
    {"private_with_children", private_with_children, "private, yet with references"},
    {"pending_unreferenced", pending_unreferenced, "pending without references"},
    {"namespace_unused", namespace_unused, "slot 5 is not in use"},
    {"parent_not_in_tree", parent_not_in_tree, "is not in the tree"},
    {"parent_of_other_namespace", parent_of_other_namespace, "of another namespace"},
    {"cached_below_pending", cached_below_pending, "cached below pending"},
    {"wrong_depth", wrong_depth, "depth 4 below depth 2"},
    {"wrong_hash", wrong_hash, "hash is not that of its path"},
    {"index_entry_lost", index_entry_lost, "entries in the index for"},
    {"index_entry_twice", index_entry_twice, "entries in the index for"},
    {"index_wrong_tag", index_wrong_tag, "not the tag of node"},
    {"index_of_free_page", index_of_free_page, "is not in the tree"},
    {"index_out_of_reach", index_out_of_reach, "not found by its hash"},
    {"equal_siblings", equal_siblings, "holds the same tokens"},
    {"child_not_in_tree", child_not_in_tree, "not in the tree"},
    {"child_of_another", child_of_another, "has another parent"},
    {"sibling_link_back", sibling_link_back, "sibling link back is wrong"},
    {"sibling_order", sibling_order, "siblings out of order"},
    {"children_miscounted", children_miscounted, "3 children, counted 2"},
    {"class_counts", class_counts, "children per class miscounted"},
    {"refs_not_closed_upward", refs_not_closed_upward, "its children have 2"},
    {"list_of_another", list_of_another, "is of another list"},
    {"list_link_back", list_link_back, "link back of page"},
    {"list_circle", list_circle, "link back of page"},
    {"list_tail", list_tail, "wrong tail"},
    {"list_count", list_count, "says 2"},
    {"list_order", list_order, "out of order of last use"},
    {"used_after_parent", used_after_parent, "used after its parent"},
    {"namespace_bytes", namespace_bytes, "hash is not that of its bytes"},
    {"equal_namespaces", equal_namespaces, "its bytes lead elsewhere"},
    {"namespace_chain", namespace_chain, "wrong chain at slot 0"},
    {"namespace_chain_short", namespace_chain_short, "slot 1: 0 times in its bucket"},
    {"namespace_counts", namespace_counts, "namespaces count"},
    {"namespace_root_lost", namespace_root_lost, "its root has 0 children"},
    {"state_counts", state_counts, "pages are cached, counted"},
    {"referenced_count", referenced_count, "nodes are referenced, counted"},
    {"pin_of_another", pin_of_another, "is not its own"},
    {"pins_not_closed_upward", pins_not_closed_upward, "own and children's are"},
    {"pin_counts", pin_counts, "counted 1 under 2"},
    {"pinned_pages_count", pinned_pages_count, "counted 2 under 1"},
    {"pin_over_budget", pin_over_budget, "the budget is 8"},
    {"pinned_below_its_class", pinned_below_its_class, "belongs on 3"},
    {"pinned_pending", pinned_pending, "pinned and not written"},
    {"shared_not_closed_upward", shared_not_closed_upward, "fewer sessions"},
    {"session_not_closed_upward", session_not_closed_upward, "fewer sessions"},
    {"orphans", orphans, "are somebody's child"},
};

static void test_sound_fixture(void)
{
    make();
    kit_sound(f.tree);
    esp_tree_destroy(f.tree);
}

static void test_every_fault_is_seen(void)
{
    for (size_t idx = 0; idx < sizeof faults / sizeof faults[0]; idx++) {
        make();
        kit_sound(f.tree);
        faults[idx].make_fault();
        char reason[160] = "nothing seen";
        bool sound = esp_tree_check(f.tree, reason, sizeof reason);
        CHECK(!sound && strstr(reason, faults[idx].reason) != NULL, "%s: %s", faults[idx].name, reason);
        esp_tree_destroy(f.tree);
    }
}

static void test_reason_is_cut_to_fit(void)
{
    make();
    unknown_state();
    char reason[8] = "xxxxxxx";
    CHECK(!esp_tree_check(f.tree, reason, 5) && strcmp(reason, "page") == 0 && reason[5] == 'x', "%s", reason);
    CHECK(!esp_tree_check(f.tree, NULL, 0), "no room for a reason is fine");
    esp_tree_destroy(f.tree);
}

ESP_TEST_MAIN(T(test_sound_fixture), T(test_every_fault_is_seen), T(test_reason_is_cut_to_fit))
