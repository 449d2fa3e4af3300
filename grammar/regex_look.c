/* Look-around, \b and anchors inside a pattern, by what must follow.
 *
 *   suffix(node, tail)    the texts that node and then tail match, up to the end of the text
 *   a(?=b)c               a · (b Σ* ∧ c Σ*)          look-ahead narrows its tail
 *   a(?!b)c               a · (c Σ* but not b Σ*)
 *   x$y                   x · (ε where the tail may be empty)
 *   (?<!b)$               the whole text, but not Σ* b
 *   \b                    depends on the character before (known, or it is refused) and narrows the tail
 *
 * A place knows whether the pattern's beginning is still open on its left (then it puts Σ* there) and which kinds
 * of characters may stand before it. Recursion follows the tree, whose depth the reader limits.
 * Thread: the owner's of the expressions.
 */
#include "grammar/live.h"
#include "grammar/regex_tree.h"

enum { BEFORE_WORD = 1, BEFORE_OTHER = 2, BEFORE_NOTHING = 4, BEFORE_ANY = 7, MAY_BE_EMPTY = 8 };

struct place {
    bool left;       /* nothing was matched yet, and no ^ came */
    unsigned before; /* what may stand before: BEFORE_… */
};

static uint32_t suffix(struct esp_regex_build *b, const struct esp_regex_node *node, struct place at, uint32_t tail);

/* ---- Characters --------------------------------------------------------------------------------- */

static void word_set(struct esp_regex_build *b, struct esp_cpset *set, bool others)
{
    esp_cpset_init(set, b->in->arena);
    esp_cpset_add(set, '0', '9');
    esp_cpset_add(set, 'A', 'Z');
    esp_cpset_add(set, '_', '_');
    esp_cpset_add(set, 'a', 'z');
    if (others) {
        esp_cpset_negate(set);
    }
}

static unsigned set_kinds(const struct esp_cpset *set)
{
    static const struct esp_cprange words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    unsigned kinds = 0;
    for (uint32_t idx = 0; idx < set->n; idx++) {
        uint64_t n_words = 0, n = (uint64_t)set->r[idx].last - set->r[idx].first + 1;
        for (int word = 0; word < 4; word++) {
            uint32_t first = set->r[idx].first > words[word].first ? set->r[idx].first : words[word].first;
            uint32_t last = set->r[idx].last < words[word].last ? set->r[idx].last : words[word].last;
            n_words += first <= last ? last - first + 1 : 0;
        }
        kinds |= (n_words > 0 ? BEFORE_WORD : 0u) | (n_words < n ? BEFORE_OTHER : 0u);
    }
    return kinds;
}

/* The kinds of a node's last character, and whether it may match nothing. */
static unsigned last_kinds(const struct esp_regex_node *node)
{
    unsigned kinds = 0;
    switch (node->kind) {
    case ESP_RE_SET: return set_kinds(&node->set);
    case ESP_RE_ALT:
        for (const struct esp_regex_node *child = node->child; child != NULL; child = child->next) {
            kinds |= last_kinds(child);
        }
        return kinds;
    case ESP_RE_CAT:
        kinds = MAY_BE_EMPTY;
        for (const struct esp_regex_node *child = node->child; child != NULL; child = child->next) {
            unsigned own = last_kinds(child);
            kinds = own & MAY_BE_EMPTY ? kinds | (own & ~(unsigned)MAY_BE_EMPTY) : own;
        }
        return kinds;
    case ESP_RE_REP:
        kinds = node->hi == 0 ? 0 : last_kinds(node->child);
        return node->lo == 0 ? kinds | MAY_BE_EMPTY : kinds;
    default: return MAY_BE_EMPTY;
    }
}

/* The place after a node. */
static struct place after(const struct esp_regex_node *node, struct place at)
{
    if (node->kind == ESP_RE_BEGIN) {
        return (struct place){false, at.left ? BEFORE_NOTHING : at.before};
    }
    unsigned kinds = last_kinds(node), before = at.left ? BEFORE_ANY : at.before;
    if (node->kind == ESP_RE_ALT && node->anchored) { /* one branch may begin with ^ */
        before = BEFORE_ANY;
    }
    return (struct place){false, kinds & MAY_BE_EMPTY ? (kinds & BEFORE_ANY) | before : kinds};
}

/* ---- Parts -------------------------------------------------------------------------------------- */

static uint32_t alive(struct esp_regex_build *b, uint32_t id)
{
    esp_live_and(b->x, id);
    return b->x->exprs[id].flags & ESP_EXPR_DEAD ? ESP_EXPR_EMPTY : id;
}

/* Those texts of id that are (or are not) in other. */
static uint32_t narrow(struct esp_regex_build *b, uint32_t id, uint32_t other, bool negative)
{
    uint32_t ids[2] = {id, other};
    if (id == ESP_EXPR_EMPTY) {
        return id;
    }
    return alive(b, negative ? esp_expr_not(b->x, id, other) : esp_expr_and(b->x, ids, 2));
}

/* id with Σ* before it where the beginning is open. */
static uint32_t open(struct esp_regex_build *b, struct place at, uint32_t id)
{
    return at.left ? esp_expr_cat(b->x, b->around, id) : id;
}

static uint32_t anything(struct esp_regex_build *b)
{
    return esp_spell_any(b->x, b->spelling);
}

static uint32_t begin(struct esp_regex_build *b, struct place at, uint32_t tail)
{
    if (at.left || at.before == BEFORE_NOTHING) {
        return tail;
    }
    return at.before & BEFORE_NOTHING ? esp_regex_unsupported(b, "^ after something that may be empty is not supported")
                                      : ESP_EXPR_EMPTY;
}

static uint32_t ahead(struct esp_regex_build *b, const struct esp_regex_node *node, struct place at, uint32_t tail)
{
    struct place inside = {false, at.left ? BEFORE_ANY : at.before};
    uint32_t look = suffix(b, node->child, inside, anything(b));
    return open(b, at, narrow(b, tail, look, node->negative));
}

static uint32_t behind(struct esp_regex_build *b, const struct esp_regex_node *node, struct place at, uint32_t tail)
{
    const struct esp_regex_node *child = node->child;
    bool nothing = at.left ? b->around == ESP_EXPR_EPS : at.before == BEFORE_NOTHING;
    if (child->looks || (nothing && child->anchored) || (!nothing && !at.left)) {
        return esp_regex_unsupported(b, "look-behind is only supported at the beginning and before a last $");
    }
    if (nothing) {
        bool empty = (last_kinds(child) & MAY_BE_EMPTY) != 0;
        return empty != node->negative ? tail : ESP_EXPR_EMPTY;
    }
    uint32_t before = esp_regex_build(b, child, true, false);
    before = node->negative ? narrow(b, anything(b), before, true) : before;
    return esp_expr_cat(b->x, before, tail);
}

static uint32_t border(struct esp_regex_build *b, const struct esp_regex_node *node, struct place at, uint32_t tail)
{
    struct esp_cpset words, others;
    word_set(b, &words, false);
    word_set(b, &others, true);
    uint32_t word = esp_spell_set(b->x, b->spelling, &words), other = esp_spell_set(b->x, b->spelling, &others);
    uint32_t begins_word = esp_expr_cat(b->x, word, anything(b));
    uint32_t before_other = narrow(b, tail, begins_word, node->negative); /* what may follow no word character */
    uint32_t before_word = narrow(b, tail, begins_word, !node->negative);
    if (at.left && b->around != ESP_EXPR_EPS) {
        uint32_t ends_other = esp_expr_opt(b->x, esp_expr_cat(b->x, b->around, other));
        return esp_expr_alt2(b->x, esp_expr_cat(b->x, ends_other, before_other),
                             esp_expr_cat(b->x, esp_expr_cat(b->x, b->around, word), before_word));
    }
    if (at.left || (at.before & BEFORE_WORD) == 0) {
        return before_other;
    }
    return at.before == BEFORE_WORD ? before_word
                                    : esp_regex_unsupported(b, "\\b after characters of both kinds is not supported");
}

/* ---- The tree ----------------------------------------------------------------------------------- */

static uint32_t suffix_cat(struct esp_regex_build *b, const struct esp_regex_node *node, struct place at, uint32_t tail)
{
    struct step {
        const struct esp_regex_node *node;
        struct place at;
        struct step *before;
    } *last = NULL;
    if (node->child == NULL) {
        return open(b, at, tail);
    }
    for (const struct esp_regex_node *child = node->child; child != NULL; child = child->next) {
        struct step *step = esp_arena_alloc(b->in->arena, 1, sizeof *step);
        if (step == NULL) {
            esp_exprs_fail(b->x, ESP_ENOMEM);
            return ESP_EXPR_EMPTY;
        }
        *step = (struct step){child, at, last};
        last = step;
        at = after(child, at);
    }
    for (; last != NULL && b->status == ESP_OK; last = last->before) {
        tail = suffix(b, last->node, last->at, tail);
    }
    return tail;
}

static uint32_t suffix_alt(struct esp_regex_build *b, const struct esp_regex_node *node, struct place at, uint32_t tail)
{
    uint32_t id = ESP_EXPR_EMPTY;
    for (const struct esp_regex_node *child = node->child; child != NULL && b->status == ESP_OK; child = child->next) {
        id = esp_expr_alt2(b->x, id, suffix(b, child, at, tail));
    }
    return id;
}

static uint32_t suffix(struct esp_regex_build *b, const struct esp_regex_node *node, struct place at, uint32_t tail)
{
    if (!node->anchored) {
        return open(b, at, esp_expr_cat(b->x, esp_regex_build(b, node, false, false), tail));
    }
    switch (node->kind) {
    case ESP_RE_CAT: return suffix_cat(b, node, at, tail);
    case ESP_RE_ALT: return suffix_alt(b, node, at, tail);
    case ESP_RE_REP:
        if (node->hi != 1) {
            return esp_regex_unsupported(b, "an anchor or a look-around inside a repeat is not supported");
        }
        tail = node->lo == 1 ? suffix(b, node->child, at, tail)
                             : esp_expr_alt2(b->x, open(b, at, tail), suffix(b, node->child, at, tail));
        return tail;
    case ESP_RE_BEGIN: return begin(b, at, tail);
    case ESP_RE_END:
        return tail != ESP_EXPR_EMPTY && esp_expr_nullable(b->x, tail) ? open(b, at, ESP_EXPR_EPS) : ESP_EXPR_EMPTY;
    case ESP_RE_LOOK: return node->behind ? behind(b, node, at, tail) : ahead(b, node, at, tail);
    default: return border(b, node, at, tail);
    }
}

/* ---- Whole patterns ----------------------------------------------------------------------------- */

/* Is the child one of the look-behinds before a last $? They are about the whole text. */
static bool is_last_look(const struct esp_regex_node *cat, const struct esp_regex_node *child)
{
    if (child == cat->child || child->kind != ESP_RE_LOOK || !child->behind) {
        return false;
    }
    while (child != NULL && child->kind == ESP_RE_LOOK && child->behind) {
        child = child->next;
    }
    return child != NULL && child == cat->last && child->kind == ESP_RE_END;
}

static uint32_t whole_cat(struct esp_regex_build *b, const struct esp_regex_node *cat)
{
    struct esp_regex_node rest = *cat, **link = &rest.child;
    for (const struct esp_regex_node *child = cat->child; child != NULL; child = child->next) {
        struct esp_regex_node *copy = esp_arena_alloc(b->in->arena, 1, sizeof *copy);
        if (copy == NULL) {
            esp_exprs_fail(b->x, ESP_ENOMEM);
            return ESP_EXPR_EMPTY;
        }
        *copy = *child;
        copy->next = NULL;
        if (!is_last_look(cat, child)) {
            *link = copy;
            link = &copy->next;
        }
    }
    uint32_t id = suffix(b, &rest, (struct place){true, BEFORE_ANY}, b->around);
    struct esp_regex_build searching = *b;
    searching.around = anything(b);
    for (const struct esp_regex_node *child = cat->child; child != NULL && b->status == ESP_OK; child = child->next) {
        if (is_last_look(cat, child)) {
            uint32_t end = child->child->looks
                               ? esp_regex_unsupported(b, "look-around inside look-behind is not supported")
                               : esp_regex_build(&searching, child->child, true, false);
            b->status = searching.status != ESP_OK ? searching.status : b->status;
            id = narrow(b, id, end, child->negative);
        }
    }
    return id;
}

uint32_t esp_regex_build_looks(struct esp_regex_build *b, const struct esp_regex_node *root)
{
    uint32_t id = ESP_EXPR_EMPTY;
    for (const struct esp_regex_node *cat = root->child; cat != NULL && b->status == ESP_OK; cat = cat->next) {
        id = esp_expr_alt2(b->x, id, whole_cat(b, cat));
    }
    return id;
}
